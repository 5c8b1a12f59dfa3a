"""Memory as a node postprocessor of LlamaIndex (``pip install '.[llama-index]'``).

::

    from kinrank import Memory
    from kinrank.adapters.llama_index import MemoryPostprocessor

    postprocessor = MemoryPostprocessor(memory=Memory("memory.db"))
    engine = index.as_query_engine(node_postprocessors=[postprocessor])
    response = engine.query(question)
    postprocessor.learn(question, response.source_nodes, liked=response.source_nodes[:1])
"""

from __future__ import annotations

from typing import TypeAlias

from kinrank.adapters._shared import REASON, Learns, scores_of
from kinrank.errors import DataError
from kinrank.memory.memory import Document as Known
from kinrank.memory.memory import Memory
from kinrank.registry import import_extra

import_extra("llama_index.core", "llama-index")
from llama_index.core.postprocessor.types import BaseNodePostprocessor  # noqa: E402 - after the check
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle  # noqa: E402
from pydantic import Field  # noqa: E402

Node: TypeAlias = NodeWithScore | BaseNode
"""A node with or without its score."""


class MemoryPostprocessor(BaseNodePostprocessor, Learns[Node]):
    """Reorders nodes by what people chose for similar questions.

    Nodes get the new scores. Their metadata get ``kinrank_reason``, the reason, which neither language models nor
    encoders see: it quotes earlier questions.

    Attributes
    ----------
    memory
        The memory.
    """

    memory: Memory = Field(exclude=True)

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which LlamaIndex knows it."""
        return "MemoryPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise DataError("memory needs the question and got none: pass query_bundle or query_str")
        scores = scores_of([node.score for node in nodes])
        hits = self.memory.rerank(query_bundle.query_str, self._all_known(nodes), scores)
        return [NodeWithScore(node=_explained(nodes[hit.place].node, hit.reason), score=hit.score) for hit in hits]

    @staticmethod
    def _known(document: Node) -> Known:
        return document.node_id, document.get_content()


def _explained(node: BaseNode, reason: str) -> BaseNode:
    """Return a copy with a reason that is in no prompt and in no vector."""
    hidden = {
        name: [*dict.fromkeys([*getattr(node, name), REASON])]
        for name in ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys")
    }
    return node.model_copy(update={"metadata": node.metadata | {REASON: reason}, **hidden})
