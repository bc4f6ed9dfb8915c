//! Names of vector buckets and indexes, and the collections in which they are.

use super::failure::ApiError;
use crate::names::EntryName;

/// The account in the names of resources: a server has no accounts.
const ACCOUNT: &str = "000000000000";
/// The lengths of names.
const NAME_CHARACTERS: std::ops::RangeInclusive<usize> = 3..=63;

/// Returns the ARN of a bucket.
pub(super) fn bucket_arn(region: &str, bucket: &str) -> String {
    format!("arn:aws:s3vectors:{region}:{ACCOUNT}:bucket/{bucket}")
}

/// Returns the ARN of an index.
pub(super) fn index_arn(region: &str, index: &IndexName) -> String {
    format!("{}/index/{}", bucket_arn(region, &index.bucket), index.index)
}

/// The name of an index in its bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IndexName {
    pub(super) bucket: String,
    pub(super) index: String,
}

impl IndexName {
    /// Returns the name of the collection in which the index is. Names of buckets and indexes have no `_`.
    pub(super) fn collection(&self) -> Result<EntryName, ApiError> {
        format!("{}_{}", self.bucket, self.index).parse().map_err(ApiError::invalid)
    }
}

/// A bucket, or an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Resource {
    Bucket(String),
    Index(IndexName),
}

impl Resource {
    /// Parses an ARN. Its partition, region and account may be any.
    pub(super) fn parse(arn: &str, field: &str) -> Result<Resource, ApiError> {
        let invalid =
            || ApiError::field(field, format!("{arn:?} is not the ARN of a vector bucket or an index"));
        let parts: Vec<&str> = arn.splitn(6, ':').collect();
        let &["arn", _, "s3vectors", _, _, rest] = &parts[..] else { return Err(invalid()) };
        let rest: Vec<&str> = rest.split('/').collect();
        match rest[..] {
            ["bucket", bucket] => Ok(Resource::Bucket(checked(bucket, field)?)),
            ["bucket", bucket, "index", index] => Ok(Resource::Index(IndexName {
                bucket: checked(bucket, field)?,
                index: checked(index, field)?,
            })),
            _ => Err(invalid()),
        }
    }
}

/// Checks a name of a bucket or an index.
fn checked(name: &str, field: &str) -> Result<String, ApiError> {
    let is_edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_inner = |byte: u8| is_edge(byte) || matches!(byte, b'.' | b'-');
    let bytes = name.as_bytes();
    let edges =
        bytes.first().zip(bytes.last()).is_some_and(|(first, last)| is_edge(*first) && is_edge(*last));
    if !NAME_CHARACTERS.contains(&name.len()) || !edges || !bytes.iter().all(|byte| is_inner(*byte)) {
        return Err(ApiError::field(
            field,
            format!(
                "{name:?} is not a valid name: 3 to 63 lowercase letters, digits, '.' and '-', beginning and \
                 ending with a letter or a digit"
            ),
        ));
    }
    Ok(name.to_owned())
}

/// Returns the bucket that a request names or gives by its ARN.
pub(super) fn bucket_of(name: Option<&str>, arn: Option<&str>) -> Result<String, ApiError> {
    match (name, arn) {
        (Some(name), None) => checked(name, "vectorBucketName"),
        (None, Some(arn)) => match Resource::parse(arn, "vectorBucketArn")? {
            Resource::Bucket(bucket) => Ok(bucket),
            Resource::Index(_) => Err(ApiError::field("vectorBucketArn", "it is the ARN of an index")),
        },
        _ => Err(ApiError::invalid("give either vectorBucketName or vectorBucketArn")),
    }
}

/// Returns the index that a request names in a bucket, or gives by its ARN.
pub(super) fn index_of(
    bucket: Option<&str>,
    index: Option<&str>,
    arn: Option<&str>,
) -> Result<IndexName, ApiError> {
    match (bucket, index, arn) {
        (Some(bucket), Some(index), None) => Ok(IndexName {
            bucket: checked(bucket, "vectorBucketName")?,
            index: checked(index, "indexName")?,
        }),
        (None, None, Some(arn)) => match Resource::parse(arn, "indexArn")? {
            Resource::Index(index) => Ok(index),
            Resource::Bucket(_) => Err(ApiError::field("indexArn", "it is the ARN of a vector bucket")),
        },
        _ => Err(ApiError::invalid("give either vectorBucketName and indexName, or indexArn")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_named_or_given_by_their_arns() {
        let index = index_of(Some("bucket"), Some("my.index"), None).unwrap();
        let arn = index_arn("eu-west-1", &index);
        assert_eq!(arn, "arn:aws:s3vectors:eu-west-1:000000000000:bucket/bucket/index/my.index");
        assert_eq!(index_of(None, None, Some(&arn)).unwrap(), index);
        assert_eq!(Resource::parse(&arn, "x").unwrap(), Resource::Index(index.clone()));
        assert_eq!(index.collection().unwrap().as_str(), "bucket_my.index");
        assert_eq!(bucket_of(None, Some(&bucket_arn("r", "abc"))).unwrap(), "abc");
        assert!(bucket_of(None, Some(&arn)).is_err() && bucket_of(Some("abc"), Some(&arn)).is_err());
        assert!(index_of(Some("abc"), None, None).is_err());
        for bad in ["ab", "Abc", "a_b", "-ab", "ab-", "a/b", "../x", &"x".repeat(64)] {
            assert!(bucket_of(Some(bad), None).is_err(), "{bad}");
        }
    }
}
