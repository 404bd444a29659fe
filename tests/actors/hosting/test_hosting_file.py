"""The file of ``interlock run``: what it says is what is hosted, and nothing is ignored."""

from pathlib import Path

import pytest
from interlock.actors.hosting.file import FileError, read_file
from interlock.actors.hosting.load import load_model, load_tools

AGENT = """
[[agents]]
id = "a"
prompt = "Go."
model = { kind = "scripted", script = [{ text = "Hello." }] }
"""


def write(path: Path, text: str) -> Path:
    file = path / "agents.toml"
    file.write_text(text)
    return file


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    text = '[runtime]\nroot = "logs"\n' + AGENT + 'cwd = "work"\n'
    file = read_file(write(tmp_path, text))
    assert file.root == tmp_path / "logs"
    assert [agent.cwd for agent in file.agents] == [tmp_path / "work"]


def test_a_count_spells_out_its_agents(tmp_path: Path) -> None:
    file = read_file(write(tmp_path, AGENT + "count = 3\n"))
    assert [agent.id for agent in file.agents] == ["a-1", "a-2", "a-3"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('colour = "red"\n' + AGENT, ["'colour'", "top level"]),
        (AGENT + "contu = 3\n", ["'contu'", "agents[0]"]),
        ("[runtime]\nsandbx = 1\n" + AGENT, ["'sandbx'", "runtime"]),
        ('[runtime]\nsandbox = "open"\n' + AGENT, ["runtime.sandbox", "'open'"]),
        (AGENT.replace('text = "Hello."', "txt = 1"), ["agent 'a'", "'txt'"]),
        (AGENT.replace('kind = "scripted"', 'kind = "oracle"'), ["agents[0].model", "oracle"]),
        (AGENT + AGENT, ["two agents", "'a'"]),
        (AGENT + 'prompts = ["x"]\n', ["either prompt or prompts"]),
        (AGENT + 'cwd = "nowhere"\n', ["nowhere", "no directory"]),
        (AGENT + "count = 0\n", ["count"]),
        ("= 1", ["not TOML"]),
        ("agents = []", ["0 agents"]),
    ],
)
def test_what_is_wrong_is_named_with_its_file(tmp_path: Path, text: str, words: list[str]) -> None:
    file = write(tmp_path, text)
    with pytest.raises(FileError) as caught:
        read_file(file)
    message = str(caught.value)
    assert str(file) in message
    assert [word for word in words if word not in message] == []


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"nope\.toml"):
        read_file(tmp_path / "nope.toml")


@pytest.mark.parametrize("use", ["red_file", "no_such_module_here:x", "json:loads"])
def test_a_tool_that_is_none_is_named(tmp_path: Path, use: str) -> None:
    file = read_file(write(tmp_path, f'[[tools]]\nuse = "{use}"\n' + AGENT))
    with pytest.raises(FileError, match=use):
        load_tools(file)


def test_a_factory_beside_the_file_makes_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models_of_this_test.py").write_text(
        "from interlock.actors import Say, ScriptedModel\n"
        "def make(name):\n    return ScriptedModel([Say(text='x')], model=name)\n"
    )
    monkeypatch.setattr("sys.path", ["/"])
    kind = 'kind = "python", factory = "models_of_this_test:make", options = { name = "big" }'
    text = AGENT.replace('kind = "scripted", script = [{ text = "Hello." }]', kind)
    file = read_file(write(tmp_path, text))
    monkeypatch.undo()
    assert load_model(file, file.agents[0].model).config.model == "big"
