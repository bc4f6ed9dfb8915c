"""A vector store of LlamaIndex over a collection. Needs ``llama-index-core``:
``pip install 'bathyal[llama-index]'``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

try:
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings
    from llama_index.core.schema import BaseNode, MetadataMode
    from llama_index.core.vector_stores.types import (
        BasePydanticVectorStore,
        FilterCondition,
        FilterOperator,
        MetadataFilter,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )
    from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
except ModuleNotFoundError as error:
    message = "bathyal.llama_index needs llama-index-core: pip install 'bathyal[llama-index]'"
    raise ModuleNotFoundError(message, name=error.name) from error

from bathyal import awaiting
from bathyal.arguments import Metric, Path
from bathyal.collection import Collection
from bathyal.documents import as_list, column_values, filter_advice
from bathyal.found_rows import FoundRows, Metadata
from bathyal.keywords import parameter_names, refuse_unknown

TEXT, NODE, KIND, DOCUMENT = "text", "node", "node_type", "ref_doc_id"
KEPT = {TEXT: "string", NODE: "string", KIND: "string", DOCUMENT: "string"}
"""The columns of a node: its text, the rest of it as JSON, its class, and its document."""

COMPARISONS = {
    FilterOperator.EQ: "$eq",
    FilterOperator.GT: "$gt",
    FilterOperator.GTE: "$gte",
    FilterOperator.LT: "$lt",
    FilterOperator.LTE: "$lte",
    FilterOperator.IN: "$in",
    FilterOperator.CONTAINS: "$contains",
    FilterOperator.ANY: "$containsAny",
    FilterOperator.ALL: "$containsAll",
}
NEGATIONS = {FilterOperator.NE: "$ne", FilterOperator.NIN: "$nin"}
"""In LlamaIndex, rows without a value match these operators, too."""

MMR_PREFETCH = 4
"""Neighbours from which maximal marginal relevance chooses, per node wanted; as in other stores."""

OPENING = parameter_names(Collection.open, "path")
CREATING = parameter_names(Collection.create, "path", "dim", "metric", "columns", "vectors", "id")
"""The options that are passed to collections. The store sets their other options itself."""
SEARCHING = ["recall", "search_list", "threads", "timeout"]
"""The options of every query."""
DIVERSE = ["mmr_threshold", "mmr_prefetch_factor"]
"""The options of the mode ``mmr``."""
HYBRID = ("alpha", "sparse_top_k", "hybrid_top_k", "embedding_field", "output_fields")
"""Attributes of a query that no mode of a collection uses."""


class BathyalVectorStore(BasePydanticVectorStore):
    """Nodes of LlamaIndex in a :class:`Collection`.

    The text of a node is in the column ``text``, and the rest of it in the column ``node``, as JSON. Filters
    can use those keys of the metadata that are also columns of the collection; declare them when the
    collection is created. All operators of ``MetadataFilters`` work except ``TEXT_MATCH``: collections do not
    search within texts.
    Similarities: cosine, the inner product, or ``1 / (1 + distance)`` under l2.

    Args:
        collection: an open collection, created by :meth:`create`. The caller closes it.
        recall: share of the true nearest among the matching nodes that a query should find.

    >>> from llama_index.core.schema import TextNode
    >>> from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQuery
    >>> store = BathyalVectorStore.create("nodes.collection", dim=2, columns={"year": "int64"})
    >>> store.add([
    ...     TextNode(id_="a", text="one", embedding=[1.0, 0.0], metadata={"year": 2019, "by": "Ada"}),
    ...     TextNode(id_="b", text="two", embedding=[0.0, 1.0], metadata={"year": 2024}),
    ... ])
    ['a', 'b']
    >>> before = MetadataFilters.from_dicts([{"key": "year", "value": 2020, "operator": "<"}])
    >>> found = store.query(VectorStoreQuery(query_embedding=[0.0, 1.0], filters=before))
    >>> found.ids, found.nodes[0].metadata
    (['a'], {'year': 2019, 'by': 'Ada'})
    >>> store.client.close()
    """

    stores_text: bool = True
    flat_metadata: bool = False
    _collection: Collection = PrivateAttr()
    _recall: float = PrivateAttr()
    _metric: str = PrivateAttr()
    _typed: dict[str, str] = PrivateAttr()

    def __init__(self, collection: Collection, *, recall: float = 0.95) -> None:
        schema = collection.schema
        kinds = {column["name"]: column["type"] for column in schema["columns"]}
        missing = [name for name, kind in KEPT.items() if kinds.get(name) != kind]
        if schema["id"] != "string" or len(schema["vectors"]) != 1 or missing:
            raise ValueError(
                f"{collection.path}: a vector store of LlamaIndex requires ids that are strings, one vector "
                f"field, and the columns {', '.join(KEPT)} of type string; create one with "
                "BathyalVectorStore.create"
            )
        super().__init__(stores_text=True)
        self._collection = collection
        self._recall = recall
        self._metric = schema["vectors"][0]["metric"]
        self._typed = {name: kind for name, kind in kinds.items() if name not in KEPT}

    @classmethod
    def class_name(cls) -> str:
        """The name of the class for LlamaIndex."""
        return "BathyalVectorStore"

    @classmethod
    def create(
        cls,
        path: Path,
        dim: int,
        *,
        columns: dict[str, str] | None = None,
        metric: Metric = "cosine",
        recall: float = 0.95,
        **options: Any,
    ) -> BathyalVectorStore:
        """Creates a collection for nodes at ``path``.

        Args:
            dim: components of the embeddings.
            columns: keys of the metadata that filters can use, and their types, as for
                :meth:`Collection.create`.
            options: those of :meth:`Collection.create`.

        Raises:
            FileExistsError: ``path`` exists.
            TypeError: an option that a collection does not have.
            ValueError: an invalid schema.
        """
        refuse_unknown("create()", options, [*parameter_names(cls.create, "path", "dim"), *CREATING])
        kept = KEPT.keys() & (columns or {}).keys()
        if kept:
            raise ValueError(f"columns: {min(kept)!r} is reserved for the {min(kept)} of a node")
        all_columns = {**KEPT, **(columns or {})}
        collection = Collection.create(path, dim, metric, columns=all_columns, **options)
        return cls(collection, recall=recall)

    @classmethod
    def open(cls, path: Path, *, recall: float = 0.95, **options: Any) -> BathyalVectorStore:
        """Opens the collection at ``path``; ``options`` are those of :meth:`Collection.open`."""
        refuse_unknown("open()", options, ["recall", *OPENING])
        return cls(Collection.open(path, **options), recall=recall)

    @property
    def client(self) -> Collection:
        """The collection."""
        return self._collection

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Adds nodes with embeddings, and replaces those with the same ids: all of them, or none.

        Raises:
            TypeError: an unknown argument.
            ValueError: a node without an embedding; a value that its column cannot hold.
        """
        refuse_unknown("add()", kwargs, ["nodes"])
        if nodes:
            self._collection.upsert(*self._rows(nodes))
        return [node.node_id for node in nodes]

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """:meth:`add`, awaited."""
        refuse_unknown("async_add()", kwargs, ["nodes"])
        if nodes:
            await self._collection.upsert_async(*self._rows(nodes))
        return [node.node_id for node in nodes]

    def _rows(self, nodes: Sequence[BaseNode]) -> tuple[list[str], list[list[float]], list[dict[str, Any]]]:
        """Returns the ids, vectors and columns of nodes."""
        ids = [node.node_id for node in nodes]
        return ids, [node.get_embedding() for node in nodes], [self._row(node) for node in nodes]

    def _row(self, node: BaseNode) -> dict[str, Any]:
        kept = node_to_metadata_dict(node, remove_text=True, flat_metadata=False)
        # LlamaIndex treats empty lists as missing values, so columns do, too.
        values = {name: None if value == [] else value for name, value in node.metadata.items()}
        return {
            TEXT: node.get_content(metadata_mode=MetadataMode.NONE),
            NODE: kept["_node_content"],
            KIND: kept["_node_type"],
            DOCUMENT: node.ref_doc_id,
            **column_values(values, self._typed),
        }

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Deletes the nodes of a document.

        Raises:
            TypeError: an id that is not text, such as None; an unknown argument.
        """
        refuse_unknown("delete()", delete_kwargs, ["ref_doc_id"])
        if not isinstance(ref_doc_id, str):
            raise TypeError(
                f"ref_doc_id is {ref_doc_id!r:.100}; expected the id of a document, which is text"
            )
        self._collection.delete(filter={DOCUMENT: ref_doc_id})

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """:meth:`delete`, awaited."""
        await awaiting.in_thread(lambda: self.delete(ref_doc_id, **delete_kwargs))

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """Deletes the nodes with these ids, those that match ``filters``, or, with both, those with these ids
        that match. :meth:`clear` deletes all nodes.

        Raises:
            TypeError: neither ``node_ids`` nor ``filters``; an unknown argument.
            ValueError: empty filters, which would match all nodes, or filters on keys that are not columns.
        """
        refuse_unknown("delete_nodes()", delete_kwargs, ["node_ids", "filters"])
        if node_ids is None and filters is None:
            raise TypeError("delete_nodes() takes node_ids, filters or both; clear() deletes all nodes")
        if node_ids is None and _is_empty(filters):
            raise ValueError("filters are empty, or contain some that are; clear() deletes all nodes")
        with filter_advice():
            self._collection.delete(filter=_all_of(_ids(node_ids), condition(filters, self._typed)))

    async def adelete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """:meth:`delete_nodes`, awaited."""
        await awaiting.in_thread(lambda: self.delete_nodes(node_ids, filters, **delete_kwargs))

    def clear(self) -> None:
        """Deletes all nodes."""
        self._collection.delete(filter="true")

    async def aclear(self) -> None:
        """:meth:`clear`, awaited."""
        await awaiting.in_thread(self.clear)

    def persist(self, persist_path: str, fs: Any = None) -> None:
        """Does nothing if the collection is in a folder or a bucket: added nodes are already stored there,
        and not at ``persist_path``.

        Raises:
            ValueError: the collection is in the memory of this process, and is lost with it.
        """
        if self._collection.path.startswith("memory://"):
            raise ValueError(
                f"{self._collection.path} is in memory, and persist() cannot keep it; copy it to a folder with "
                "client.copy(path), or create the store in one"
            )

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Returns the nodes with these ids that match ``filters``, in the order of their ids; all if neither
        is given."""
        with filter_advice():
            matching = _all_of(_ids(node_ids), condition(filters, self._typed))
            batches = self._collection.batches(filter=matching, columns=[TEXT, NODE, KIND])
            return [node for batch in batches for node in _nodes(batch.metadata)]

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """:meth:`get_nodes`, awaited."""
        return await awaiting.in_thread(lambda: self.get_nodes(node_ids, filters))

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Returns the matching nodes nearest to an embedding, or with the mode ``MMR`` near ones that differ
        from each other.

        ``kwargs`` are ``recall``, ``search_list``, ``threads`` and ``timeout``, as for
        :meth:`Collection.search`, and in the mode ``MMR`` also ``mmr_threshold`` and ``mmr_prefetch_factor``.

        Raises:
            TypeError: an argument that the mode does not have.
            ValueError: another mode; filters on keys that are not columns; ``TEXT_MATCH``; an attribute that
                only hybrid queries use, such as ``alpha``.
        """
        vector, options = self._search_options(query, kwargs)
        with filter_advice():
            found = self._collection.search(vector, **options)
        return self._result(query, found, kwargs)

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """:meth:`query`, awaited."""
        vector, options = self._search_options(query, kwargs)
        with filter_advice():
            found = await self._collection.search_async(vector, **options)
        return self._result(query, found, kwargs)

    def _search_options(
        self, query: VectorStoreQuery, kwargs: dict[str, Any]
    ) -> tuple[list[float], dict[str, Any]]:
        """Returns the vector and the options of the search in the collection."""
        if query.mode not in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR):
            raise ValueError(f"query mode {query.mode.value!r} is not supported; expected 'default' or 'mmr'")
        diverse = query.mode == VectorStoreQueryMode.MMR
        accepted = [*SEARCHING, *(DIVERSE if diverse else [])]
        refuse_unknown(f"a query in the mode {query.mode.value!r}", kwargs, accepted)
        for name in HYBRID if diverse else (*HYBRID, "mmr_threshold"):
            if getattr(query, name) is not None:
                raise ValueError(
                    f"the query has {name}={getattr(query, name)!r}, which a collection in the mode "
                    f"{query.mode.value!r} does not use; leave it out"
                )
        if query.query_embedding is None:
            raise ValueError("the query has no embedding, by which a collection is searched")
        documents = None if query.doc_ids is None else {DOCUMENT: {"$in": as_list("doc_ids", query.doc_ids)}}
        # An index whose nodes are all in the store passes an empty list for all nodes.
        named = _ids(query.node_ids or None)
        options: dict[str, Any] = {
            "k": query.similarity_top_k * (kwargs.get("mmr_prefetch_factor", MMR_PREFETCH) if diverse else 1),
            **({} if kwargs.get("search_list") is not None else {"recall": self._recall}),
            **{name: value for name, value in kwargs.items() if name in SEARCHING},
            "filter": _all_of(named, documents, condition(query.filters, self._typed)),
            "columns": [TEXT, NODE, KIND],
            "vectors": diverse,
        }
        return query.query_embedding, options

    def _result(
        self, query: VectorStoreQuery, found: FoundRows, kwargs: dict[str, Any]
    ) -> VectorStoreQueryResult:
        nodes, ids = _nodes(found.metadata), found.ids.tolist()
        if query.mode != VectorStoreQueryMode.MMR:
            scores = [self._similarity(float(distance)) for distance in found.distances]
            return VectorStoreQueryResult(nodes=nodes, similarities=scores, ids=ids)
        if found.vectors is None or not ids:
            return VectorStoreQueryResult(nodes=[], similarities=[], ids=[])
        scores, places = get_top_k_mmr_embeddings(
            query.query_embedding or [],
            found.vectors.astype("f8").tolist(),
            similarity_top_k=query.similarity_top_k,
            embedding_ids=list(range(len(ids))),
            mmr_threshold=kwargs.get("mmr_threshold", query.mmr_threshold),
        )
        chosen = [nodes[place] for place in places]
        return VectorStoreQueryResult(nodes=chosen, similarities=scores, ids=[ids[place] for place in places])

    def _similarity(self, distance: float) -> float:
        if self._metric == "cosine":
            return 1.0 - distance
        return -distance if self._metric == "ip" else 1.0 / (1.0 + distance)


def condition(filters: MetadataFilters | None, columns: Mapping[str, str]) -> dict[str, Any] | None:
    """Converts filters of LlamaIndex to a filter of a collection with these ``columns``.

    LlamaIndex has no third truth value: a node without the key matches ``NE`` and ``NIN`` and no other
    operator, and ``NOT`` matches if none of its filters does.

    >>> from llama_index.core.vector_stores.types import MetadataFilters
    >>> condition(MetadataFilters.from_dicts([{"key": "year", "value": 2020, "operator": ">="}]), {})
    {'year': {'$gte': 2020, '$exists': True}}
    """
    if filters is None or not filters.filters:
        return None
    parts = [_one(one, columns) for one in filters.filters]
    if filters.condition == FilterCondition.OR:
        return _joined("$or", parts)
    if filters.condition == FilterCondition.NOT:
        return {"$not": _joined("$or", parts)}
    return _joined("$and", parts)


def _is_empty(filters: MetadataFilters | None) -> bool:
    """Returns True if filters, or filters nested in them, are empty and so match all nodes."""
    if filters is None or not filters.filters:
        return True
    return any(isinstance(one, MetadataFilters) and _is_empty(one) for one in filters.filters)


def _one(filter: MetadataFilter | MetadataFilters, columns: Mapping[str, str]) -> dict[str, Any]:
    if isinstance(filter, MetadataFilters):
        # Nested and empty: every node matches.
        return condition(filter, columns) or {}
    key, operator, value = filter.key, filter.operator, filter.value
    if operator == FilterOperator.IS_EMPTY:
        empty: list[dict[str, Any]] = [{key: ""}] if columns.get(key) == "string" else []
        return _joined("$or", [{key: None}, *empty])
    if operator in COMPARISONS:
        return {key: {COMPARISONS[operator]: value, "$exists": True}}
    if operator in NEGATIONS:
        return {"$or": [{key: {NEGATIONS[operator]: value}}, {key: None}]}
    raise ValueError(
        f"the filter: {key!r} has the operator {operator.value!r}, which collections do not have: they do not "
        "search within texts. Declare a column of lists of words, and use 'contains', 'any' or 'all'"
    )


def _joined(word: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    return parts[0] if len(parts) == 1 else {word: parts}


def _ids(ids: list[str] | None) -> dict[str, Any] | None:
    return None if ids is None else {"id": {"$in": as_list("node_ids", ids)}}


def _all_of(*conditions: dict[str, Any] | None) -> dict[str, Any] | None:
    given = [one for one in conditions if one is not None]
    return _joined("$and", given) if given else None


def _nodes(metadata: Metadata) -> list[BaseNode]:
    columns = zip(metadata[NODE], metadata[KIND], metadata[TEXT], strict=True)
    return [
        metadata_dict_to_node({"_node_content": node, "_node_type": kind}, text=text)
        for node, kind, text in columns
    ]
