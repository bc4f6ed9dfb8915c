//! Filters of queries: conditions on keys of metadata.

use super::failure::ApiError;
use super::registry::METADATA;
use bathyal_collection::Filter;
use serde_json::{Map, Value, json};

/// The operators on a key.
const OPERATORS: [&str; 10] =
    ["$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists", "$startsWith"];
/// The deepest nesting of filters.
const MAX_DEPTH: usize = 50;

/// Returns the filter of a query. Keys in `unfiltered` are refused.
pub(super) fn read(given: &Value, unfiltered: &[String]) -> Result<Filter, ApiError> {
    let translated = translate(given, unfiltered, "filter", MAX_DEPTH)?;
    Filter::from_json(&translated).map_err(|error| ApiError::field("filter", error.to_string()))
}

/// Returns the filter on the column of metadata.
fn translate(given: &Value, unfiltered: &[String], path: &str, depth: usize) -> Result<Value, ApiError> {
    let object = given.as_object().filter(|object| !object.is_empty() && depth > 0).ok_or_else(|| {
        ApiError::field(path, format!("it has to be an object with conditions, at most {MAX_DEPTH} deep"))
    })?;
    let mut parts = Vec::new();
    for (key, condition) in object {
        let path = format!("{path}.{key}");
        if matches!(&key[..], "$and" | "$or") {
            let items = condition.as_array().filter(|items| !items.is_empty());
            let items = items.ok_or_else(|| ApiError::field(&*path, "it has to be a list of filters"))?;
            let each = items.iter().enumerate();
            let each = each.map(|(at, one)| translate(one, unfiltered, &format!("{path}[{at}]"), depth - 1));
            parts.push(json!({ key: each.collect::<Result<Vec<Value>, _>>()? }));
            continue;
        }
        if key.starts_with('$') {
            return Err(ApiError::field(&*path, "it is no operator between filters; $and and $or are"));
        }
        if unfiltered.contains(key) {
            return Err(ApiError::field(&*path, "the key is one of the non-filterable keys of the index"));
        }
        check_condition(condition, &path)?;
        parts.push(json!({ format!("{METADATA}.{key}"): condition }));
    }
    Ok(json!({ "$and": parts }))
}

/// Refuses what is no condition on a key.
fn check_condition(condition: &Value, path: &str) -> Result<(), ApiError> {
    let is_single = |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
    let Some(operators) = condition.as_object() else {
        return match is_single(condition) {
            true => Ok(()),
            false => Err(ApiError::field(path, "a key is compared with a string, a number or a boolean")),
        };
    };
    if operators.is_empty() {
        return Err(ApiError::field(path, "there is no operator"));
    }
    for (operator, value) in operators {
        let path = format!("{path}.{operator}");
        let refuse = |message: &str| Err(ApiError::field(&*path, message));
        let list = || value.as_array().filter(|items| !items.is_empty() && items.iter().all(is_single));
        match &operator[..] {
            name if !OPERATORS.contains(&name) => {
                return refuse(&format!("there is no such operator; there are {}", OPERATORS.join(", ")));
            }
            "$in" | "$nin" if list().is_none() => return refuse("it takes a list of values, at least one"),
            "$exists" if !value.is_boolean() => return refuse("it takes true or false"),
            "$startsWith" if !value.is_string() => return refuse("it takes a string"),
            "$in" | "$nin" | "$exists" | "$startsWith" => {}
            "$gt" | "$gte" | "$lt" | "$lte" if !value.is_number() => return refuse("it takes a number"),
            _ if !is_single(value) => return refuse("it takes a string, a number or a boolean"),
            _ => {}
        }
    }
    Ok(())
}

/// Refuses metadata that the API does not allow. Values are strings, numbers, booleans, or lists of these.
pub(super) fn check_metadata(metadata: &Map<String, Value>, path: &str) -> Result<(), ApiError> {
    let is_single = |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
    for (key, value) in metadata {
        let is_list = || value.as_array().is_some_and(|items| items.iter().all(is_single));
        if !is_single(value) && !is_list() {
            let message = "a value is a string, a number, a boolean, or a list of these";
            return Err(ApiError::field(format!("{path}.{key}"), message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(filter: Value) -> String {
        read(&filter, &["secret".into()]).err().map_or("accepted".into(), |error| format!("{error:?}"))
    }

    #[test]
    fn filters_are_those_of_the_column_of_metadata() {
        let text = |filter: Value| read(&filter, &[]).unwrap().to_string();
        assert_eq!(text(json!({ "year": { "$gte": 2020 } })), "metadata.year >= 2020");
        let both = text(json!({ "$or": [{ "a": "x" }, { "b": { "$exists": false } }] }));
        assert!(both.contains("metadata.a = 'x'") && both.contains("metadata.b is null"), "{both}");
        let prefix = text(json!({ "a": { "$startsWith": "b", "$nin": ["c", 1] } }));
        assert!(prefix.contains("starts_with(metadata.a, 'b')"), "{prefix}");
    }

    #[test]
    fn what_the_api_does_not_have_is_refused_with_its_place() {
        assert_eq!(reason(json!({ "a": 1 })), "accepted");
        for (filter, place) in [
            (json!({}), "filter"),
            (json!([]), "filter"),
            (json!({ "$not": { "a": 1 } }), "filter.$not"),
            (json!({ "$and": [] }), "filter.$and"),
            (json!({ "$and": [{ "a": { "$regex": "x" } }] }), "filter.$and[0].a.$regex"),
            (json!({ "a": null }), "filter.a"),
            (json!({ "a": [1] }), "filter.a"),
            (json!({ "a": { "$in": [] } }), "filter.a.$in"),
            (json!({ "a": { "$gt": "x" } }), "filter.a.$gt"),
            (json!({ "a": { "$eq": [1] } }), "filter.a.$eq"),
            (json!({ "secret": 1 }), "filter.secret"),
        ] {
            let found = reason(filter.clone());
            assert!(found.contains(&format!("{place:?}")), "{filter}: {found}");
        }
        let deep = (0..60).fold(json!({ "a": 1 }), |inner, _| json!({ "$and": [inner] }));
        assert!(reason(deep).contains("deep"));
    }

    #[test]
    fn metadata_has_plain_values() {
        let check = |value: Value| check_metadata(value.as_object().unwrap(), "m").is_ok();
        assert!(check(json!({ "a": 1, "b": "x", "c": true, "d": ["x", 2] })));
        assert!(!check(json!({ "a": null })) && !check(json!({ "a": {} })) && !check(json!({ "a": [[1]] })));
    }
}
