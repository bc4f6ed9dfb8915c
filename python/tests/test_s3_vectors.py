"""The API of Amazon S3 Vectors, used by the client of AWS and compared with the model that it ships."""

from __future__ import annotations

import datetime
import json
import urllib.error
import urllib.request

import boto3
import botocore
import numpy as np
import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

import serving

REGION = "eu-central-1"
NEAREST = 5


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A server for the tests of this file."""
    with serving.serving(tmp_path_factory.mktemp("s3-vectors")) as running:
        yield running


def client_of(running, key="admin", secret=None, region=REGION):
    """Returns a client of AWS for the server."""
    return boto3.client(
        "s3vectors",
        endpoint_url=f"http://{running.api}",
        region_name=region,
        aws_access_key_id=key,
        aws_secret_access_key=secret or running.key,
        config=Config(retries={"max_attempts": 1}, parameter_validation=True),
    )


@pytest.fixture
def s3(running):
    """A client, whose buckets are removed afterwards."""
    client = client_of(running)
    yield client
    for bucket in client.list_vector_buckets()["vectorBuckets"]:
        name = bucket["vectorBucketName"]
        for index in client.list_indexes(vectorBucketName=name)["indexes"]:
            client.delete_index(indexArn=index["indexArn"])
        client.delete_vector_bucket(vectorBucketName=name)


def refused(call, code, words=""):
    """Returns the error of a call, after a look at its code."""
    with pytest.raises(ClientError) as caught:
        call()
    answer = caught.value.response
    assert answer["Error"]["Code"] == code, answer
    assert words in answer["Error"]["Message"] + json.dumps(answer.get("fieldList", [])), answer
    return answer


def filled(s3, count=200, dim=8, metric="euclidean", **options):
    """Creates a bucket with an index of `count` vectors; returns the vectors, and what names the index."""
    s3.create_vector_bucket(vectorBucketName="media")
    s3.create_index(
        vectorBucketName="media", indexName="movies", dataType="float32", dimension=dim, distanceMetric=metric,
        **options,
    )  # fmt: skip
    vectors = np.random.default_rng(4).standard_normal((count, dim)).astype(np.float32)
    index = {"vectorBucketName": "media", "indexName": "movies"}
    rows = [
        {
            "key": f"movie {at:04} ü",
            "data": {"float32": vectors[at].tolist()},
            "metadata": {
                "year": 1990 + at % 40,
                "genres": [["drama", "war"], ["comedy"]][at % 2],
                "seen": at % 3 == 0,
            },
        }
        for at in range(count)
    ]
    for first in range(0, count, 500):
        s3.put_vectors(**index, vectors=rows[first : first + 500])
    return vectors, index


def test_the_nearest_vectors_are_found_with_filters_before_limits(s3):
    vectors, index = filled(s3, 1200)
    query = vectors[7] + np.float32(0.05)

    def of(test):
        return np.array([test(at) for at in range(1200)])

    distances = np.sqrt(((vectors - query) ** 2).sum(1))
    for filter, matches in (
        (None, np.ones(1200, bool)),
        ({"year": {"$gte": 2020}}, of(lambda at: at % 40 >= 30)),
        ({"$and": [{"genres": "war"}, {"seen": True}]}, of(lambda at: at % 6 == 0)),
        ({"year": {"$in": [1991, 2003]}}, of(lambda at: at % 40 in (1, 13))),
        ({"year": 1991, "missing": {"$exists": False}}, of(lambda at: at % 40 == 1)),
        ({"$or": [{"genres": {"$startsWith": "com"}}, {"year": {"$lt": 1992}}]},
         of(lambda at: at % 2 == 1 or at % 40 < 2)),
    ):  # fmt: skip
        given = {} if filter is None else {"filter": filter}
        found = s3.query_vectors(
            **index, topK=NEAREST, queryVector={"float32": query.tolist()}, returnDistance=True,
            returnMetadata=True, **given,
        )  # fmt: skip
        assert found["distanceMetric"] == "euclidean"
        expected = [at for at in np.argsort(distances, kind="stable") if matches[at]][:NEAREST]
        assert [one["key"] for one in found["vectors"]] == [f"movie {at:04} ü" for at in expected]
        np.testing.assert_allclose(
            [one["distance"] for one in found["vectors"]], distances[expected], rtol=1e-4
        )
        assert [one["metadata"]["year"] for one in found["vectors"]] == [1990 + at % 40 for at in expected]
    bare = s3.query_vectors(**index, topK=3, queryVector={"float32": query.tolist()})["vectors"]
    assert [sorted(one) for one in bare] == [["key"]] * 3


def test_answers_and_listings_come_in_pages(s3):
    vectors, index = filled(s3, 1200)
    query = {"float32": vectors[0].tolist()}
    pages = list(s3.get_paginator("query_vectors").paginate(**index, topK=1200, queryVector=query))
    keys = [one["key"] for page in pages for one in page["vectors"]]
    assert [len(page["vectors"]) for page in pages] == [1000, 200]
    assert len(set(keys)) == 1200
    token = pages[0]["nextToken"]
    refused(
        lambda: s3.query_vectors(**index, topK=1100, queryVector=query, nextToken=token),
        "ValidationException",
    )
    listed = [
        one["key"] for page in s3.get_paginator("list_vectors").paginate(**index) for one in page["vectors"]
    ]
    assert listed == [f"movie {at:04} ü" for at in range(1200)]
    some = s3.list_vectors(**index, maxResults=3, returnData=True, returnMetadata=True)["vectors"]
    np.testing.assert_array_equal(np.float32(some[2]["data"]["float32"]), vectors[2])
    assert some[1]["metadata"]["genres"] == ["comedy"]
    segments = [
        {one["key"] for page in s3.get_paginator("list_vectors").paginate(**index, segmentCount=4, segmentIndex=at)
         for one in page["vectors"]}
        for at in range(4)
    ]  # fmt: skip
    assert sum(map(len, segments)) == 1200
    assert set().union(*segments) == set(listed)


def test_vectors_are_replaced_read_and_deleted(s3):
    vectors, index = filled(s3, 20, metric="cosine")
    s3.put_vectors(**index, vectors=[{"key": "movie 0003 ü", "data": {"float32": [1.0] * 8}}])
    found = s3.get_vectors(
        **index, keys=["movie 0003 ü", "none", "movie 0001 ü"], returnMetadata=True, returnData=True
    )
    assert [one["key"] for one in found["vectors"]] == ["movie 0003 ü", "movie 0001 ü"]
    assert found["vectors"][0]["metadata"] == {}
    # Under cosine, segments have vectors of length 1.
    data = np.float32(found["vectors"][1]["data"]["float32"])
    np.testing.assert_allclose(
        data / np.linalg.norm(data), vectors[1] / np.linalg.norm(vectors[1]), rtol=1e-4
    )
    s3.delete_vectors(**index, keys=["movie 0003 ü", "none"])
    assert s3.get_vectors(**index, keys=["movie 0003 ü"])["vectors"] == []
    near = s3.query_vectors(
        **index, topK=1, queryVector={"float32": (3 * vectors[4]).tolist()}, returnDistance=True
    )
    assert near["vectors"][0]["key"] == "movie 0004 ü"
    assert abs(near["vectors"][0]["distance"]) < 1e-5


def test_buckets_and_indexes_are_described_listed_and_deleted(s3):
    arn = s3.create_vector_bucket(vectorBucketName="one", tags={"team": "search"})["vectorBucketArn"]
    assert arn == f"arn:aws:s3vectors:{REGION}:000000000000:bucket/one"
    for name in ("three", "two"):
        s3.create_vector_bucket(vectorBucketName=name)
    refused(lambda: s3.create_vector_bucket(vectorBucketName="one"), "ConflictException")
    bucket = s3.get_vector_bucket(vectorBucketArn=arn)["vectorBucket"]
    assert bucket["vectorBucketName"] == "one"
    age = datetime.datetime.now(datetime.timezone.utc) - bucket["creationTime"]
    assert abs(age.total_seconds()) < 600
    pages = s3.get_paginator("list_vector_buckets").paginate(PaginationConfig={"PageSize": 2})
    assert [one["vectorBucketName"] for page in pages for one in page["vectorBuckets"]] == [
        "one",
        "three",
        "two",
    ]
    assert len(s3.list_vector_buckets(prefix="t")["vectorBuckets"]) == 2
    for name in ("b.2", "a-1"):
        made = s3.create_index(
            vectorBucketArn=arn, indexName=name, dataType="float32", dimension=3, distanceMetric="cosine",
            metadataConfiguration={"nonFilterableMetadataKeys": ["text"]}, tags={"a": "b"},
        )  # fmt: skip
    assert made["indexArn"] == f"{arn}/index/a-1"
    index = s3.get_index(indexArn=made["indexArn"])["index"]
    assert (index["dimension"], index["dataType"], index["distanceMetric"]) == (3, "float32", "cosine")
    assert index["metadataConfiguration"] == {"nonFilterableMetadataKeys": ["text"]}
    assert [one["indexName"] for one in s3.list_indexes(vectorBucketName="one")["indexes"]] == ["a-1", "b.2"]
    assert [one["indexName"] for one in s3.list_indexes(vectorBucketName="one", prefix="b")["indexes"]] == [
        "b.2"
    ]
    # Tags of both kinds.
    assert s3.list_tags_for_resource(resourceArn=arn)["tags"] == {"team": "search"}
    s3.tag_resource(resourceArn=made["indexArn"], tags={"owner": "é", "a": "c"})
    s3.untag_resource(resourceArn=made["indexArn"], tagKeys=["owner", "none"])
    assert s3.list_tags_for_resource(resourceArn=made["indexArn"])["tags"] == {"a": "c"}
    assert s3.get_index(indexArn=made["indexArn"])["index"]["creationTime"] == index["creationTime"]
    refused(lambda: s3.delete_vector_bucket(vectorBucketName="one"), "ConflictException", "delete them first")
    s3.delete_index(indexArn=made["indexArn"])
    refused(lambda: s3.get_index(indexArn=made["indexArn"]), "NotFoundException", "index")
    s3.delete_index(vectorBucketName="one", indexName="b.2")
    s3.delete_vector_bucket(vectorBucketName="one")
    refused(lambda: s3.get_vector_bucket(vectorBucketName="one"), "NotFoundException", "bucket")
    refused(lambda: s3.list_indexes(vectorBucketName="one"), "NotFoundException")
    # Modes and policies: what there is not, is refused.
    s3.put_vector_bucket_default_index_mode(vectorBucketName="two", defaultIndexMode="CLASSIC")
    refused(
        lambda: s3.put_vector_bucket_default_index_mode(vectorBucketName="two", defaultIndexMode="ENHANCED"),
        "ValidationException", "CLASSIC",
    )  # fmt: skip
    refused(lambda: s3.get_vector_bucket_policy(vectorBucketName="two"), "NotFoundException")
    refused(
        lambda: s3.put_vector_bucket_policy(vectorBucketName="two", policy="{}"),
        "ValidationException",
        "keys",
    )
    s3.delete_vector_bucket_policy(vectorBucketName="two")


def test_requests_beyond_the_limits_are_refused_with_the_member(s3):
    vectors, index = filled(s3, 10, metadataConfiguration={"nonFilterableMetadataKeys": ["text"]})
    vector = vectors[0].tolist()

    def put(**members):
        row = {"key": "k", "data": {"float32": vector}, **members}
        return lambda: s3.put_vectors(**index, vectors=[row])

    def query(**members):
        return lambda: s3.query_vectors(**{**index, "topK": 1, "queryVector": {"float32": vector}, **members})

    put(metadata={"text": "x" * 40_000, "n": 1})()
    for call, words in (
        (put(key="x" * 1025), "vectors[0].key"),
        (put(data={"float32": vector[1:]}), "vectors[0].data.float32"),
        (put(metadata={"text": "x" * 41_000}), "40960"),
        (put(metadata={"note": "x" * 2_100}), "nonFilterableMetadataKeys"),
        (put(metadata={"deep": {"a": 1}}), "vectors[0].metadata.deep"),
        (put(metadata={str(at): at for at in range(51)}), "50"),
        (query(queryVector={"float32": [*vector, 1.0]}), "queryVector.float32"),
        (query(topK=10_001), "topK"),
        (query(filter={"text": "x"}), "filter.text"),
        (query(filter={"a": {"$regex": "x"}}), "$regex"),
        (query(filter={"$not": {"a": 1}}), "$not"),
        (query(queryTexts=[{"text": "a", "metadataKey": "b"}]), "queryTexts"),
        (query(nextToken="17-abc"), "nextToken"),
        (lambda: s3.list_vectors(**index, segmentCount=4), "segmentCount"),
        (lambda: s3.put_vectors(**index, vectors=[{"key": "a", "data": {"float32": vector}}] * 2), "twice"),
        (lambda: s3.get_index(vectorBucketName="media"), "indexArn"),
        (lambda: s3.create_vector_bucket(vectorBucketName="Bad_Name"), "vectorBucketName"),
        (lambda: s3.create_vector_bucket(vectorBucketName="kms", encryptionConfiguration={"sseType": "AES256"}),
         "encryptionConfiguration"),
    ):  # fmt: skip
        refused(call, "ValidationException", words)
    nan = [float("nan")] * 8
    refused(
        lambda: s3.put_vectors(**index, vectors=[{"key": "n", "data": {"float32": nan}}]),
        "ValidationException",
    )
    assert len(s3.list_vectors(**index)["vectors"]) == 11


def test_only_signed_requests_of_keys_with_the_right_are_answered(running, s3, tmp_path_factory):
    filled(s3, 10)
    refused(
        client_of(running, secret="wrong secret wrong secret").list_vector_buckets,
        "InvalidSignatureException",
    )
    refused(client_of(running, key="nobody").list_vector_buckets, "UnrecognizedClientException")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(f"http://{running.api}/ListVectorBuckets", b"{}"))
    assert caught.value.code == 403
    assert caught.value.headers["x-amzn-errortype"] == "MissingAuthenticationTokenException"
    caught.value.close()
    # A presigned address, of which a body that differs is refused.
    for age, body, status in ((0, b"", 200), (0, b'{"prefix": "m"}', 403), (400, b"", 403)):
        url = f"http://{running.api}/ListVectorBuckets"
        signed = AWSRequest("POST", url, headers={"Host": running.api})
        signer = SigV4QueryAuth(Credentials("admin", running.key), "s3vectors", REGION, expires=300)
        signer.add_auth(signed)
        url = signed.url.replace("X-Amz-Expires=300", "X-Amz-Expires=1") if age else signed.url
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body)) as answer:
                found = answer.status
        except urllib.error.HTTPError as error:
            found = error.code
            error.close()
        assert found == status, (age, body)


def test_clients_of_several_servers_change_the_same_buckets(tmp_path):
    with serving.serving(tmp_path) as first, serving.serving(tmp_path) as second:
        one, other = client_of(first), client_of(second)
        one.create_vector_bucket(vectorBucketName="media")
        index = {"vectorBucketName": "media", "indexName": "movies"}
        other.create_index(**index, dataType="float32", dimension=2, distanceMetric="euclidean")
        for number, client in enumerate((one, other, one, other)):
            vector = {
                "key": str(number),
                "data": {"float32": [number, 0]},
                "metadata": {"even": number % 2 == 0},
            }
            client.put_vectors(**index, vectors=[vector])
            assert len(client.get_vectors(**index, keys=[str(number)])["vectors"]) == 1
        query = {"queryVector": {"float32": [0, 0]}, "topK": 4, "filter": {"even": True}}
        assert [found["key"] for found in other.query_vectors(**index, **query)["vectors"]] == ["0", "2"]
        resource = other.get_index(**index)["index"]["indexArn"]
        other.tag_resource(resourceArn=resource, tags={"a b/c": "ü"})
        assert other.list_tags_for_resource(resourceArn=resource)["tags"] == {"a b/c": "ü"}
        other.untag_resource(resourceArn=resource, tagKeys=["a b/c"])
        other.delete_vectors(**index, keys=["0"])
        other.delete_index(**index)
        other.delete_vector_bucket(vectorBucketName="media")
        assert other.list_vector_buckets()["vectorBuckets"] == []


def test_keys_have_their_rights_and_prefixes_here_as_well(tmp_path):
    with serving.serving(tmp_path) as first:
        keys = (tmp_path / "keys.toml").read_text()
        (tmp_path / "keys.toml").write_text(
            keys
            + '\n[[key]]\nname = "reader"\nsecret = "0123456789abcdef"\nright = "read"\nprefix = "shop-"\n'
        )
        writer = client_of(first)
        for name in ("shop-a", "other"):
            writer.create_vector_bucket(vectorBucketName=name)
    with serving.serving(tmp_path) as again:
        reader = client_of(again, "reader", "0123456789abcdef")
        assert [one["vectorBucketName"] for one in reader.list_vector_buckets()["vectorBuckets"]] == [
            "shop-a"
        ]
        reader.get_vector_bucket(vectorBucketName="shop-a")
        refused(lambda: reader.get_vector_bucket(vectorBucketName="other"), "AccessDeniedException")
        refused(lambda: reader.create_vector_bucket(vectorBucketName="shop-b"), "AccessDeniedException")


def sample(shape, depth=0):
    """Returns a value that suits a shape of the model."""
    kind = shape.type_name
    if kind == "structure":
        if shape.name == "VectorData":
            return {"float32": [1.0, 2.0]}
        return (
            {}
            if depth > 3
            else {name: sample(shape.members[name], depth + 1) for name in shape.required_members}
        )
    if kind == "list":
        return [sample(shape.member, depth + 1)]
    if kind == "map":
        return {"key": "value"}
    if kind == "string":
        return shape.enum[0] if shape.enum else "abc"
    return {"integer": 1, "float": 1.0, "boolean": True}[kind]


def test_every_operation_of_the_model_is_there_and_requires_what_the_model_requires(running, s3):
    """Requests that lack a required member, or have a value outside an enumeration or a limit, are refused."""
    model = s3.meta.service_model
    filled(s3, 10, dim=2)
    checked = 0
    for name in model.operation_names:
        operation = model.operation_model(name)
        call = getattr(loose_client(running), botocore.xform_name(name))
        shape = operation.input_shape
        whole = {member: sample(shape.members[member]) for member in shape.required_members}
        if "vectorBucketName" in shape.members and "vectorBucketName" not in whole:
            whole["vectorBucketName"] = "media"
        if "indexName" in shape.members and "indexName" not in whole:
            whole["indexName"] = "movies"
        if "resourceArn" in whole:
            whole["resourceArn"] = f"arn:aws:s3vectors:{REGION}:000000000000:bucket/media"
        for member in shape.required_members:
            if shape.members[member].serialization.get("location") == "uri":
                continue
            lacking = {key: value for key, value in whole.items() if key != member}
            refused(lambda call=call, lacking=lacking: call(**lacking), "ValidationException")
            checked += 1
        for member, part in shape.members.items():
            wrong = []
            if part.type_name == "string" and part.enum:
                wrong.append("nothing-of-the-kind")
            if part.type_name == "integer" and "min" in part.metadata:
                wrong.append(part.metadata["min"] - 1)
            if part.type_name == "integer" and "max" in part.metadata:
                wrong.append(part.metadata["max"] + 1)
            if part.type_name == "list" and "max" in part.metadata:
                wrong.append([sample(part.member)] * (part.metadata["max"] + 1))
            if part.type_name == "list" and part.metadata.get("min"):
                wrong.append([])
            for value in wrong:
                refused(
                    lambda call=call, whole=whole, member=member, value=value: call(
                        **{**whole, member: value}
                    ),
                    "ValidationException",
                )
                checked += 1
        assert not any(error.name not in KNOWN_ERRORS for error in operation.error_shapes), name
    assert checked >= 40


KNOWN_ERRORS = {
    "AccessDeniedException", "ConflictException", "InternalServerException", "NotFoundException",
    "RequestTimeoutException", "ServiceQuotaExceededException", "ServiceUnavailableException",
    "TooManyRequestsException", "ValidationException",
    # Keys of KMS: the server has none, and refuses requests that name them.
    "KmsDisabledException", "KmsInvalidKeyUsageException", "KmsInvalidStateException", "KmsNotFoundException",
}  # fmt: skip


def loose_client(running):
    """Returns a client that sends what it is given."""
    return boto3.client(
        "s3vectors",
        endpoint_url=f"http://{running.api}",
        region_name=REGION,
        aws_access_key_id="admin",
        aws_secret_access_key=running.key,
        config=Config(retries={"max_attempts": 1}, parameter_validation=False),
    )
