"""The stores of LangChain and LlamaIndex for S3 Vectors, as users take them. LangChain's comes with a suite."""

from __future__ import annotations

import uuid

import boto3
import pytest
from langchain_aws.vectorstores.s3_vectors import AmazonS3Vectors
from langchain_core.documents import Document
from langchain_tests.integration_tests.vectorstores import EMBEDDING_SIZE, VectorStoreIntegrationTests
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters, VectorStoreQuery
from llama_index.vector_stores.s3 import S3VectorStore

DIM = 4


@pytest.fixture
def bucket():
    """The name of a bucket of its own."""
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    boto3.client("s3vectors").create_vector_bucket(vectorBucketName=name)
    return name


class TestLangChain(VectorStoreIntegrationTests):
    """The suite that LangChain ships for stores of vectors."""

    @pytest.fixture
    def vectorstore(self, bucket):
        # The store makes its index with the first document, and the suite searches before.
        boto3.client("s3vectors").create_index(
            vectorBucketName=bucket,
            indexName="langchain",
            dataType="float32",
            dimension=EMBEDDING_SIZE,
            distanceMetric="cosine",
            metadataConfiguration={"nonFilterableMetadataKeys": ["_page_content"]},
        )
        return AmazonS3Vectors(
            vector_bucket_name=bucket, index_name="langchain", embedding=self.get_embeddings()
        )

    @property
    def has_async(self) -> bool:
        return True

    @pytest.mark.xfail(raises=ValueError, strict=True, reason="the store raises for an id that it lacks")
    def test_get_by_ids_missing(self, vectorstore):
        super().test_get_by_ids_missing(vectorstore)

    @pytest.mark.xfail(raises=ValueError, strict=True, reason="the store raises for an id that it lacks")
    async def test_get_by_ids_missing_async(self, vectorstore):
        await super().test_get_by_ids_missing_async(vectorstore)


def test_langchain_filters_by_metadata(bucket):
    embeddings = VectorStoreIntegrationTests.get_embeddings()
    store = AmazonS3Vectors(vector_bucket_name=bucket, index_name="filters", embedding=embeddings)
    documents = [
        Document(f"text {at}", metadata={"year": 2000 + at, "even": at % 2 == 0}) for at in range(20)
    ]
    store.add_documents(documents)
    found = store.similarity_search(
        "text 3", k=5, filter={"$and": [{"year": {"$gte": 2010}}, {"even": True}]}
    )
    assert len(found) == 5
    assert all(one.metadata["year"] >= 2010 and one.metadata["even"] for one in found)


def test_llama_index_adds_finds_and_deletes(bucket):
    store = S3VectorStore.create_index_from_bucket(
        bucket_name_or_arn=bucket,
        index_name="llama",
        dimension=DIM,
        distance_metric="cosine",
        data_type="float32",
    )
    nodes = [
        TextNode(
            text=f"node {at}", id_=f"id-{at}", metadata={"year": 2000 + at}, embedding=[1.0, at, 0.0, 0.5]
        )
        for at in range(10)
    ]
    assert len(store.add(nodes)) == len(nodes)
    query = VectorStoreQuery(query_embedding=[1.0, 3.0, 0.0, 0.5], similarity_top_k=2)
    assert store.query(query).nodes[0].text == "node 3"
    query.filters = MetadataFilters(filters=[MetadataFilter(key="year", value=2007)])
    assert [node.text for node in store.query(query).nodes] == ["node 7"]
    store.delete_nodes(node_ids=["id-3"])
    query.filters = None
    assert "node 3" not in [node.text for node in store.query(query).nodes]
