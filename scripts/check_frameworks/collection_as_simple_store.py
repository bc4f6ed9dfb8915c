"""A pytest plugin that replaces LlamaIndex's store in memory by a collection for LlamaIndex's own tests."""

import uuid

from llama_index.core import vector_stores

from bathyal.llama_index import BathyalVectorStore

# Keys of the nodes in these tests, and keys in their filters that no node has.
COLUMNS = {
    "weight": "float64",
    "rank": "string",
    "quality": "list<string>",
    "identifier": "string",
    "unknown_field": "string",
    "not_existed_key": "string",
}


def simple_vector_store():
    """Creates an empty store for vectors of two components."""
    return BathyalVectorStore.create(f"memory://simple/{uuid.uuid4()}", 2, columns=COLUMNS)


vector_stores.SimpleVectorStore = simple_vector_store
