"""Answerers: who decides what running agents ask for, in your program or in another one.

``request.py`` is what they are shown, ``route.py`` which requests one takes, ``connection.py`` the
link to a broker, ``desk.py`` the answerer for other programs, ``conformance.py`` the tests that an
answerer of somebody else can be run against.
"""
