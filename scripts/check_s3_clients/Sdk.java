// The SDK of AWS for Java: writes, queries with a filter, pages and errors.

import java.util.ArrayList;
import java.util.List;
import software.amazon.awssdk.core.document.Document;
import software.amazon.awssdk.services.s3vectors.S3VectorsClient;
import software.amazon.awssdk.services.s3vectors.model.DataType;
import software.amazon.awssdk.services.s3vectors.model.DistanceMetric;
import software.amazon.awssdk.services.s3vectors.model.NotFoundException;
import software.amazon.awssdk.services.s3vectors.model.PutInputVector;
import software.amazon.awssdk.services.s3vectors.model.VectorData;

public class Sdk {
    static final String BUCKET = "java-sdk";
    static final String INDEX = "numbers";

    static VectorData vector(float first) {
        return VectorData.fromFloat32(List.of(first, 1f));
    }

    static void check(boolean holds, Object found) {
        if (!holds) {
            throw new IllegalStateException("found " + found);
        }
    }

    public static void main(String[] words) {
        try (S3VectorsClient client = S3VectorsClient.create()) {
            client.createVectorBucket(bucket -> bucket.vectorBucketName(BUCKET));
            client.createIndex(index -> index.vectorBucketName(BUCKET).indexName(INDEX).dimension(2)
                .dataType(DataType.FLOAT32).distanceMetric(DistanceMetric.EUCLIDEAN));
            List<PutInputVector> vectors = new ArrayList<>();
            for (int at = 0; at < 20; at++) {
                Document metadata = Document.mapBuilder().putNumber("at", at).putBoolean("even", at % 2 == 0).build();
                vectors.add(PutInputVector.builder().key("key " + at).data(vector(at)).metadata(metadata).build());
            }
            client.putVectors(put -> put.vectorBucketName(BUCKET).indexName(INDEX).vectors(vectors));
            Document odd = Document.mapBuilder().putBoolean("even", false).build();
            var found = client.queryVectors(query -> query.vectorBucketName(BUCKET).indexName(INDEX).topK(2)
                .queryVector(vector(10.2f)).filter(odd).returnDistance(true).returnMetadata(true));
            check(found.vectors().size() == 2 && found.vectors().get(0).key().equals("key 11"), found);
            check(found.vectors().get(0).metadata().asMap().get("at").asNumber().intValue() == 11, found);
            long keys = client.listVectorsPaginator(list -> list.vectorBucketName(BUCKET).indexName(INDEX).maxResults(6))
                .vectors().stream().count();
            check(keys == 20, keys + " keys");
            try {
                client.getIndex(index -> index.vectorBucketName(BUCKET).indexName("nothing"));
                throw new IllegalStateException("an index that does not exist was described");
            } catch (NotFoundException expected) {
                check(expected.statusCode() == 404, expected);
            }
        }
        System.out.println("Java: passed");
    }
}
