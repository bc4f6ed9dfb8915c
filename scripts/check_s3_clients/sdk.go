// The SDK of AWS for Go: writes, queries with a filter, pages and errors.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3vectors"
	"github.com/aws/aws-sdk-go-v2/service/s3vectors/document"
	"github.com/aws/aws-sdk-go-v2/service/s3vectors/types"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	ctx := context.Background()
	options, err := config.LoadDefaultConfig(ctx)
	check(err)
	client := s3vectors.NewFromConfig(options)
	bucket, name := aws.String("golang"), aws.String("numbers")
	_, err = client.CreateVectorBucket(ctx, &s3vectors.CreateVectorBucketInput{VectorBucketName: bucket})
	check(err)
	_, err = client.CreateIndex(ctx, &s3vectors.CreateIndexInput{
		VectorBucketName: bucket, IndexName: name, DataType: types.DataTypeFloat32, Dimension: aws.Int32(2),
		DistanceMetric: types.DistanceMetricEuclidean,
	})
	check(err)
	var vectors []types.PutInputVector
	for at := range 20 {
		vectors = append(vectors, types.PutInputVector{
			Key:      aws.String(fmt.Sprintf("key %d", at)),
			Data:     &types.VectorDataMemberFloat32{Value: []float32{float32(at), 1}},
			Metadata: document.NewLazyDocument(map[string]any{"at": at, "even": at%2 == 0}),
		})
	}
	_, err = client.PutVectors(ctx, &s3vectors.PutVectorsInput{VectorBucketName: bucket, IndexName: name, Vectors: vectors})
	check(err)
	found, err := client.QueryVectors(ctx, &s3vectors.QueryVectorsInput{
		VectorBucketName: bucket, IndexName: name, TopK: aws.Int32(2), ReturnDistance: true,
		QueryVector: &types.VectorDataMemberFloat32{Value: []float32{10.2, 1}},
		Filter:      document.NewLazyDocument(map[string]any{"even": false}),
	})
	check(err)
	if len(found.Vectors) != 2 || *found.Vectors[0].Key != "key 11" {
		log.Fatalf("found %v", found.Vectors)
	}
	keys := 0
	pages := s3vectors.NewListVectorsPaginator(client, &s3vectors.ListVectorsInput{
		VectorBucketName: bucket, IndexName: name, MaxResults: aws.Int32(6),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		check(err)
		keys += len(page.Vectors)
	}
	if keys != 20 {
		log.Fatalf("%d keys were listed", keys)
	}
	_, err = client.GetIndex(ctx, &s3vectors.GetIndexInput{VectorBucketName: bucket, IndexName: aws.String("nothing")})
	var missing *types.NotFoundException
	if !errors.As(err, &missing) {
		log.Fatalf("expected NotFoundException, and got %v", err)
	}
	fmt.Println("Go: passed")
}
