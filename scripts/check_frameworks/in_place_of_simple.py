"""For pytest: LlamaIndex's own tests of its store in memory find a collection in its place."""

import uuid

from llama_index.core import vector_stores

from bathyal.llama_index import BathyalVectorStore

# What their nodes have, and what their filters name although no node has it.
COLUMNS = {
    "weight": "float64",
    "rank": "string",
    "quality": "list<string>",
    "identifier": "string",
    "unknown_field": "string",
    "not_existed_key": "string",
}


def simple_vector_store():
    """An empty store for vectors of two components."""
    return BathyalVectorStore.create(f"memory://simple/{uuid.uuid4()}", 2, columns=COLUMNS)


vector_stores.SimpleVectorStore = simple_vector_store
