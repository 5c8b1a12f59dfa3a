"""Memory in other frameworks: each adapter keeps the same promises, next to the real package."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kinrank import Memory
from kinrank.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore")  # of the frameworks
QUESTION, ALIKE = "how do I reset my password", "reset my password"
TEXTS = {"billing": "Pay by card.", "login": "Log in with your email.", "account": "Reset it under Settings."}


class LangChain:
    def __init__(self, memory: Memory) -> None:
        from langchain_core.documents import Document

        from kinrank.adapters.langchain import MemoryCompressor

        self.adapter, self._make = MemoryCompressor(memory=memory), Document

    def hit(self, name: str, text: str, score: float | None) -> Any:
        scored = {} if score is None else {"relevance_score": score}
        return self._make(page_content=text, id=name, metadata={"source": name.upper()} | scored)

    def rank(self, question: str, hits: Sequence[Any]) -> list[Any]:
        return list(self.adapter.compress_documents(hits, question))

    def read(self, hit: Any) -> tuple[str, str, float, dict[str, Any]]:
        rest = {key: value for key, value in hit.metadata.items() if key != "relevance_score"}
        return hit.id, hit.page_content, hit.metadata["relevance_score"], rest


class LlamaIndex:
    def __init__(self, memory: Memory) -> None:
        from kinrank.adapters.llama_index import MemoryPostprocessor

        self.adapter = MemoryPostprocessor(memory=memory)

    def hit(self, name: str, text: str, score: float | None) -> Any:
        from llama_index.core.schema import NodeWithScore, TextNode

        return NodeWithScore(node=TextNode(id_=name, text=text, metadata={"source": name.upper()}), score=score)

    def rank(self, question: str, hits: Sequence[Any]) -> list[Any]:
        return list(self.adapter.postprocess_nodes(list(hits), query_str=question))

    def read(self, hit: Any) -> tuple[str, str, float, dict[str, Any]]:
        return hit.node_id, hit.node.get_content(), hit.score, hit.node.metadata


class Haystack:
    def __init__(self, memory: Memory) -> None:
        from kinrank.adapters.haystack import MemoryRanker

        self.adapter = MemoryRanker(memory)

    def hit(self, name: str, text: str, score: float | None) -> Any:
        from haystack import Document

        return Document(id=name, content=text, score=score, meta={"source": name.upper()})

    def rank(self, question: str, hits: Sequence[Any]) -> list[Any]:
        return list(self.adapter.run(query=question, documents=list(hits))["documents"])

    def read(self, hit: Any) -> tuple[str, str, float, dict[str, Any]]:
        return hit.id, hit.content, hit.score, hit.meta


FRAMEWORKS = [
    pytest.param(cls, marks=pytest.mark.extra(module), id=module)
    for cls, module in ((LangChain, "langchain_core"), (LlamaIndex, "llama_index"), (Haystack, "haystack"))
]


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> Any:
    return request.param(Memory(":memory:"))


def hits_of(framework: Any, scores: Iterable[float | None] = (None,) * 3) -> list[Any]:
    return [framework.hit(name, text, score) for (name, text), score in zip(TEXTS.items(), scores, strict=True)]


def names(framework: Any, hits: Iterable[Any]) -> list[str]:
    return [framework.read(hit)[0] for hit in hits]


def test_empty_memory_keeps_the_order(framework: Any):
    assert names(framework, framework.rank(QUESTION, hits_of(framework))) == list(TEXTS)
    assert names(framework, framework.rank(QUESTION, hits_of(framework, [0.1, 0.3, 0.2]))) == [
        "login",
        "account",
        "billing",
    ]
    assert names(framework, framework.rank(QUESTION, hits_of(framework, [0.1, 0.3, None]))) == list(TEXTS)
    assert framework.rank(QUESTION, []) == []


@pytest.mark.parametrize("how", ["chosen", "cited", "liked"])
def test_what_helped_comes_first_with_its_reason(framework: Any, how: str):
    hits = hits_of(framework)
    before = [str(hit) for hit in hits]
    for user in range(3):
        framework.adapter.learn(QUESTION, hits, user=user, **{how: [hits[2]]})
    ranked = framework.rank(ALIKE, hits)
    name, text, score, metadata = framework.read(ranked[0])
    assert (name, text) == ("account", TEXTS["account"])
    assert score > framework.read(ranked[1])[2]
    assert metadata == {"source": "ACCOUNT", "kinrank_reason": f"chosen for *{QUESTION}*"}
    assert [str(hit) for hit in hits] == before  # the documents of the caller stay as they are


def test_ids_teach_too_and_dislikes_count(framework: Any):
    hits = hits_of(framework)
    for user in range(3):
        framework.adapter.learn(QUESTION, disliked=["billing"], liked=["account"], user=user)
    assert names(framework, framework.rank(ALIKE, hits))[0] == "account"
    assert "passed over" in framework.read(framework.rank(ALIKE, hits[:1])[0])[3]["kinrank_reason"]
    with pytest.raises(TypeError, match="loved"):
        framework.adapter.learn(QUESTION, hits, loved=hits[:1])


def test_a_changed_text_starts_anew(framework: Any):
    hits = hits_of(framework)
    framework.adapter.learn(QUESTION, hits, chosen=[hits[2]])
    changed = framework.hit("account", "Call us.", None)
    assert names(framework, framework.rank(QUESTION, [hits[0], hits[2]])) == ["account", "billing"]
    assert names(framework, framework.rank(QUESTION, [hits[0], changed])) == ["billing", "account"]


@pytest.mark.extra("langchain_core")
def test_langchain_documents_without_ids_and_async():
    from langchain_core.documents import Document

    compressor = LangChain(Memory(":memory:")).adapter
    hits = [Document(page_content=text * 30) for text in TEXTS.values()]
    for user in range(3):
        compressor.learn(QUESTION, hits, cited=hits[2:], user=user)
    ranked = asyncio.run(compressor.acompress_documents(hits, ALIKE))
    assert ranked[0].page_content == hits[2].page_content


@pytest.mark.extra("llama_index")
def test_llama_index_keeps_reasons_out_of_prompts_and_vectors():
    from llama_index.core.schema import MetadataMode

    framework = LlamaIndex(Memory(":memory:"))
    hits = hits_of(framework)
    framework.adapter.learn("a secret of somebody else", hits, chosen=[hits[0]])
    ranked = framework.rank("a secret of somebody", hits)[0].node
    assert "secret" in ranked.metadata["kinrank_reason"]
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        assert ranked.get_content(metadata_mode=mode) == hits[0].node.get_content(metadata_mode=mode)
    with pytest.raises(DataError, match="needs the question"):
        framework.adapter.postprocess_nodes(hits)


@pytest.mark.extra("haystack")
def test_haystack_pipeline_is_saved_with_the_path(tmp_path: Path):
    from haystack import Document, Pipeline

    from kinrank.adapters.haystack import MemoryRanker

    memory = Memory(tmp_path / "memory.db", people=2.0)
    pipeline = Pipeline()
    pipeline.add_component("memory", MemoryRanker(memory))
    for user in range(5):
        memory.learn(QUESTION, liked=["account"], user=user)
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["kinrank.adapters.haystack"])
    for each in (pipeline, again):
        documents = [Document(id=name, content=text) for name, text in TEXTS.items()]
        found = each.run({"memory": {"query": ALIKE, "documents": documents}})["memory"]["documents"]
        assert found[0].id == "account"
    assert again.get_component("memory").memory.people == 2.0


# --- MCP --------------------------------------------------------------------------------------------------------------

SERVER = "from kinrank.adapters.mcp import main; main()"


def ask(path: Path, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """Start the server as clients do, and return its tools and the answers to calls, or the texts of errors."""
    mcp = importlib.import_module("mcp")
    parameters = mcp.StdioServerParameters(
        command=sys.executable, args=["-c", SERVER, str(path)], env={"PYTHONPATH": ":".join(sys.path)}
    )

    async def session() -> list[Any]:
        async with mcp.stdio_client(parameters) as streams, mcp.ClientSession(*streams) as client:
            await client.initialize()
            answers: list[Any] = [{tool.name: tool for tool in (await client.list_tools()).tools}]
            for name, arguments in calls:
                answer = await client.call_tool(name, arguments)
                text = answer.content[0].text if answer.content else ""
                answers.append(text if answer.is_error else (answer.structured_content or {})["result"])
            return answers

    return asyncio.run(session())


@pytest.mark.extra("mcp")
def test_an_assistant_uses_and_teaches_memory_over_stdio(tmp_path: Path):
    passages = [{"id": name, "text": text} for name, text in TEXTS.items()]
    tools, before, told, again, after, recalled, why = ask(
        tmp_path / "memory.db",
        ("rerank", {"question": ALIKE, "documents": passages}),
        ("remember", {"question": QUESTION, "shown": passages, "liked": ["account"], "disliked": ["billing"]}),
        ("remember", {"question": QUESTION, "shown": passages, "liked": ["account"], "disliked": ["billing"]}),
        ("rerank", {"question": ALIKE, "documents": passages}),
        ("recall", {"question": ALIKE}),
        ("why", {"question": ALIKE, "document": "billing"}),
    )
    assert set(tools) == {"rerank", "recall", "remember", "why"}
    assert all(tool.description for tool in tools.values())
    assert [each["id"] for each in before] == list(TEXTS)
    assert told == again == "remembered 1 liked, 1 disliked"
    assert after[0]["id"] == "account"
    assert after[0]["reason"] == f"chosen for *{QUESTION}*"
    assert [each["id"] for each in recalled] == ["account"]
    assert why == f"passed over for *{QUESTION}*"
    # One user is one vote, however often the assistant says it.
    votes = Memory(tmp_path / "memory.db")._execute("SELECT count(*) FROM vote")
    assert votes == [(2 + 1,)]  # login was shown above what was liked


@pytest.mark.extra("mcp")
def test_an_assistant_reads_what_was_wrong(tmp_path: Path):
    question = {"question": QUESTION}
    _, both, scores, nothing, empty, fine = ask(
        tmp_path / "memory.db",
        ("remember", question | {"liked": ["a"], "disliked": ["a"]}),
        ("rerank", question | {"documents": ["a", "b"], "scores": [1.0]}),
        ("remember", question),
        ("rerank", question | {"documents": []}),
        ("rerank", question | {"documents": ["a", "b"]}),
    )
    assert "disliked and also" in both
    assert "one finite number per document (2)" in scores
    assert nothing.startswith("nothing to remember")
    assert empty == []
    assert [each["id"] for each in fine] == ["a", "b"]


@pytest.mark.extra("mcp")
def test_the_server_refuses_a_file_of_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from kinrank.adapters.mcp import main

    (tmp_path / "notes.txt").write_text(json.dumps(TEXTS) * 100)
    monkeypatch.setattr(sys, "argv", ["kinrank-mcp", str(tmp_path / "notes.txt")])
    with pytest.raises(SystemExit, match=r"notes\.txt cannot be opened as a memory"):
        main()
