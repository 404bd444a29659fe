"""The agent loop, and what a model is to it."""

from .agent import Agent
from .answer import Accumulator, Answer
from .async_agent import AsyncAgent
from .chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReport,
    chunks_of,
)
from .history import History
from .model import AsyncModel, Message, Model, ModelConfig, ModelRequest
from .running import AgentOutcome
from .scripted import Say, ScriptedModel, ScriptError

__all__ = [
    "Accumulator",
    "Agent",
    "AgentOutcome",
    "Answer",
    "AsyncAgent",
    "AsyncModel",
    "BlockEnd",
    "BlockStart",
    "Chunk",
    "Finish",
    "History",
    "Message",
    "Model",
    "ModelConfig",
    "ModelRequest",
    "ReasoningDelta",
    "Say",
    "ScriptError",
    "ScriptedModel",
    "TextDelta",
    "ToolCallDelta",
    "Usage",
    "UsageReport",
    "chunks_of",
]
