/* The commit path of a call, from its record to its body, for two agents.
 *
 * What it assumes and what is checked stands in README.md. Each assertion names its clause. An actor
 * handles one message at a time, so that each handling is one atomic step. A fault is planted with -D:
 * FAULT_EARLY_RELEASE, FAULT_ANY_LIFE, FAULT_ANY_GRANT, FAULT_RELEASE_AGAIN, FAULT_NO_NUMBERS,
 * FAULT_RETRY, FAULT_LATE_ACK.
 */

#ifndef LOSSES
#define LOSSES 1                /* messages that the network may lose */
#endif
#ifndef DUPLICATES
#define DUPLICATES 1            /* messages that it may deliver twice */
#endif
#ifndef WRITER_CRASHES
#define WRITER_CRASHES 1
#endif
#ifndef DISPATCHER_CRASHES
#define DISPATCHER_CRASHES 1
#endif
#ifndef RUNNING
#define RUNNING 2               /* agents that make their call */
#endif
#define AGENTS 2
/* Approval requests have numbers that no other life or agent gives: 1 and 2 in the first life of the
 * dispatcher, 3 and 4 in the second. */
#define REQUESTS 5
#define request_of(agent, of_life) (2 * (of_life) - 1 + (agent))
#define owner_of(request) (((request) - 1) % 2)

mtype = { CALL, ASKED, GRANTED, FLUSH,      /* to the writer */
          DONE, REFUSED,                    /* from the writer */
          ALLOWED, REJECTED };              /* from the broker */

/* To the writer, of each session: what, number of the request. */
chan to_writer[AGENTS] = [2] of { mtype, byte };
/* To a fiber: outcome, of which request, last or durable seq, from which life of the writer. */
chan replies[AGENTS] = [2] of { mtype, byte, byte, byte };
/* To the broker: which approval request. */
chan to_broker = [2] of { byte };
/* From the broker: which approval request, what. */
chan settled = [2] of { byte, mtype };
/* To whoever runs bodies: whose call, release number. */
chan to_body = [2] of { byte, byte };

byte lost, doubled;

/* The disk and the writer's memory: how long each log is, and which events of the call it holds. */
typedef Log { byte length; bool call; bool asked; bool granted };
Log memory[AGENTS], disk[AGENTS];
bool open[AGENTS];              /* open in the writer's present life */

byte writer_life = 1, known_writer = 1;     /* known: to the dispatcher */
byte dispatcher_life = 1;
byte writer_crashes, dispatcher_crashes;

byte next_number = 1;           /* of releases */
bool spent[REQUESTS];           /* a release was built on the grant of this request */
byte bodies[AGENTS];            /* bodies that ran */
bool denied[AGENTS];            /* a result was given that says: nothing of it ran */
bool over[AGENTS];              /* the agent has its result */

/* A send over a network that may lose what it carries, or double it. Where the model has no more
 * room it is lost as well: nobody ever waits for room to send. */
inline send1(channel, m) {
    if
    :: full(channel)
    :: nfull(channel) -> channel ! m
    :: lost < LOSSES -> lost++
    :: doubled < DUPLICATES && nfull(channel) -> doubled++;
       channel ! m;
       if :: full(channel) :: nfull(channel) -> channel ! m fi
    fi
}

inline send2(channel, m, n) {
    if
    :: full(channel)
    :: nfull(channel) -> channel ! m, n
    :: lost < LOSSES -> lost++
    :: doubled < DUPLICATES && nfull(channel) -> doubled++;
       channel ! m, n;
       if :: full(channel) :: nfull(channel) -> channel ! m, n fi
    fi
}

inline send4(channel, m, n, o, p) {
    if
    :: full(channel)
    :: nfull(channel) -> channel ! m, n, o, p
    :: lost < LOSSES -> lost++
    :: doubled < DUPLICATES && nfull(channel) -> doubled++;
       channel ! m, n, o, p;
       if :: full(channel) :: nfull(channel) -> channel ! m, n, o, p fi
    fi
}

/* A process has ended: what was on its way to it is lost. */
inline drain2(channel) {
    do :: channel ? _, _ :: empty(channel) -> break od
}

inline write_out(s) {
    d_step {
        disk[s].length = memory[s].length; disk[s].call = memory[s].call;
        disk[s].asked = memory[s].asked; disk[s].granted = memory[s].granted
    }
}

inline forget(s) {
    d_step {
        open[s] = false;
        memory[s].length = disk[s].length; memory[s].call = disk[s].call;
        memory[s].asked = disk[s].asked; memory[s].granted = disk[s].granted
    }
}

/* A fiber asks under a number that it gave to no other request, and takes the reply that has it:
 * whatever answers another one came late, and is dropped. */
inline ask(what, step) {
    rid = 4 * life + step; said = 0; seq = 0; from = 0;
    do :: replies[a] ? _, _, _, _ :: empty(replies[a]) -> break od;
    if
    :: known_writer == writer_life -> send2(to_writer[a], what, rid)
    :: else                                        /* nobody has told it that this life ended */
    fi
}
#define REPLY replies[a] ?? said, eval(rid), seq, from

/* An agent whose call is led by a fiber of the dispatcher, in one life of it after the other. */
proctype Agent(byte a) {
    byte life, rid, seq, covers, from, recorded_by, request, number;
    mtype said;

again:
    life = dispatcher_life;
    {
    /* P1: the record. */
    atomic { ask(CALL, 1) };
    if
    :: atomic { REPLY }
    :: goto nothing_ran                            /* K3: it does not come in time, or never */
    fi;
    /* A4: asked, before anybody sees it. */
    atomic {
        if :: said == REFUSED -> goto nothing_ran :: else fi;
        recorded_by = from;
        ask(ASKED, 2)
    };
    if
    :: atomic { REPLY }
    :: goto nothing_ran
    fi;
    /* The broker is asked. */
    atomic {
        if :: said == REFUSED -> goto nothing_ran :: else fi;
        seq = 0; from = 0; said = 0; rid = 0;
        request = request_of(a, life);
        send1(to_broker, request)
    };
    if
#ifdef FAULT_ANY_GRANT
    :: atomic { settled ? request, said }
#else
    :: atomic { settled ?? eval(request), said }
#endif
    :: goto nothing_ran                            /* A3: the deadline, or the broker is gone */
    fi;
    /* A5: the grant is recorded, or it is none. (A rejection is recorded too, and runs nothing.) */
    atomic {
        if :: said == REJECTED -> goto nothing_ran :: else fi;
        ask(GRANTED, 3)
    };
    if
    :: atomic { REPLY }
    :: goto nothing_ran
    fi;
    /* K2, K3: the checkpoint. */
    atomic {
        if :: said == REFUSED -> goto nothing_ran :: else fi;
        covers = seq;
        ask(FLUSH, 4)
    };
#ifndef FAULT_EARLY_RELEASE
    if
    :: atomic { REPLY }
#ifdef FAULT_LATE_ACK
    :: atomic { denied[a] = true; REPLY }          /* its result is given, and it goes on waiting */
#else
    :: goto nothing_ran
#endif
    fi;
#endif
    /* The release: built from an acknowledgement that covers the call's events (K2), of the life of
     * the writer that took them in and that is there now (K6). */
    atomic {
        if
#ifdef FAULT_EARLY_RELEASE
        :: true
#else
        :: said == REFUSED || seq < covers -> goto nothing_ran
#ifndef FAULT_ANY_LIFE
        :: from != known_writer || recorded_by != known_writer -> goto nothing_ran
#endif
        :: else
#endif
        fi;
        assert(owner_of(request) == a);            /* A2, A9: the grant names this call */
        assert(!spent[request]);                   /* A2: and was spent by no other */
        spent[request] = true;
        number = next_number; next_number++;
        send2(to_body, a, number);
        number = 0
    };
#ifdef FAULT_RELEASE_AGAIN
    /* No word came of it: released again, under another number. */
    atomic { number = next_number; next_number++; send2(to_body, a, number); number = 0 };
#endif
    over[a] = true;                                /* a result, or unknown: nothing more is led */
    goto told;

nothing_ran:
    skip;
    /* The result is recorded and told in one: where it is not in the log it was not given. */
    d_step { denied[a] = true; over[a] = true };
told:
    skip
    } unless { life != dispatcher_life && !over[a] };

    /* F3: the dispatcher has ended. The log says what is to be done. */
    atomic {
        rid = 0; seq = 0; covers = 0; from = 0; recorded_by = 0; request = 0; said = 0;
        number = 0;
        if
        :: over[a]
        :: !over[a] && !open[a] -> over[a] = true  /* the writer has ended too: repair says it */
#ifdef FAULT_RETRY
        :: !over[a] && open[a] -> goto again       /* whatever the log says of it */
#else
        :: !over[a] && open[a] && !memory[a].call -> goto again    /* not recorded: did not run */
        :: !over[a] && open[a] && memory[a].call -> over[a] = true /* recorded: unknown */
#endif
        fi;
        life = 0
    }
}

inline handle(a) {
    if
    :: over[a]                                     /* it matters no more: the disk only grows */
    :: !over[a] && !open[a] -> send4(replies[a], REFUSED, rid, 0, writer_life)
    :: else ->
        if
        :: what == CALL && !memory[a].call ->
            memory[a].call = true; memory[a].length++;
            send4(replies[a], DONE, rid, memory[a].length, writer_life)
        :: what == ASKED && memory[a].call && !memory[a].asked ->
            memory[a].asked = true; memory[a].length++;
            send4(replies[a], DONE, rid, memory[a].length, writer_life)
        :: what == GRANTED && memory[a].asked && !memory[a].granted ->
            memory[a].granted = true; memory[a].length++;
            send4(replies[a], DONE, rid, memory[a].length, writer_life)
        :: what == FLUSH ->
            if
            :: write_out(a); send4(replies[a], DONE, rid, disk[a].length, writer_life)
            :: send4(replies[a], REFUSED, rid, 0, writer_life)       /* L6: the disk refused */
            fi
        :: else -> send4(replies[a], REFUSED, rid, 0, writer_life)   /* against the grammar */
        fi
    fi;
    what = 0; rid = 0
}

/* The writer: appends in memory, writes to disk, answers. A crash leaves what is on the disk. */
active proctype Writer() {
    mtype what;
    byte rid;
end:
    do
    :: atomic { to_writer[0] ? what, rid -> handle(0) }
    :: atomic { to_writer[1] ? what, rid -> handle(1) }
    :: atomic {
        writer_crashes < WRITER_CRASHES && !(over[0] && over[1]) ->
        writer_crashes++; writer_life++;
        drain2(to_writer[0]); drain2(to_writer[1]);
        /* L3: the background write may have been in time, for each log. */
        if :: write_out(0) :: skip fi; forget(0);
        if :: write_out(1) :: skip fi; forget(1)
       }
    /* F2: the host opens a session again; repair completes it, durably, with events of its own. */
    :: atomic { !open[0] && !over[0] -> open[0] = true; memory[0].length = memory[0].length + 3; write_out(0) }
    :: atomic { !open[1] && !over[1] -> open[1] = true; memory[1].length = memory[1].length + 3; write_out(1) }
    od
}

/* The broker: one answer to one request, the same one to the same request again. It may crash at any
 * time, any number of times. */
active proctype Broker() {
    byte request;
    mtype answer[REQUESTS];
end:
    do
    :: atomic {
        to_broker ? request ->
        if
        :: answer[request] == 0 -> answer[request] = ALLOWED
        :: answer[request] == 0 -> answer[request] = REJECTED
        :: else
        fi;
        send2(settled, request, answer[request]);
        request = 0
       }
    :: atomic {
        nempty(to_broker) ->
        do :: to_broker ? _ :: empty(to_broker) -> break od;
        answer[1] = 0; answer[2] = 0; answer[3] = 0; answer[4] = 0
       }
    od
}

/* Whoever runs bodies: a worker, or the host. It runs nothing whose number it has passed (K6). It may
 * crash at any time, any number of times: another process, with another connection. */
active proctype Body() {
    byte a, number, passed;
end:
    do
    :: atomic {
        to_body ? a, number ->
        if
#ifndef FAULT_NO_NUMBERS
        :: number <= passed
#endif
        :: else ->
            passed = number;
            bodies[a]++;
            assert(bodies[a] == 1);                                    /* P9, K6 */
            assert(disk[a].call && disk[a].asked && disk[a].granted);  /* K2 */
            assert(!denied[a])                                         /* K3 */
        fi;
        a = 0; number = 0
       }
    :: atomic { nempty(to_body) -> drain2(to_body); passed = 0 }
    od
}

/* The host sees owners end, in its own time, and tells the dispatcher. */
active proctype Host() {
end:
    do
    :: known_writer != writer_life -> known_writer = writer_life
    :: atomic {
        dispatcher_crashes < DISPATCHER_CRASHES && !(over[0] && over[1]) ->
        dispatcher_crashes++; dispatcher_life++
       }
    od
}

init {
    atomic {
        open[0] = true; open[1] = true;
        run Agent(0);
        if :: RUNNING == 2 -> run Agent(1) :: RUNNING == 1 -> over[1] = true fi
    }
}
