//! Credentials, region and endpoint from `~/.aws`, as far as they are written there.

use bathyal_store::StoreError;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What a profile says, by the keys that a store knows.
pub(super) type Profile = BTreeMap<&'static str, String>;

/// Keys of the files, and what a store calls them.
const KEYS: [(&str, &str); 5] = [
    ("aws_access_key_id", "aws_access_key_id"),
    ("aws_secret_access_key", "aws_secret_access_key"),
    ("aws_session_token", "aws_session_token"),
    ("region", "aws_region"),
    ("endpoint_url", "aws_endpoint"),
];
/// Ways to credentials that are not written in the files.
const ELSEWHERE: [&str; 4] = ["sso_session", "sso_start_url", "role_arn", "credential_process"];

/// The profile `named`, or of `AWS_PROFILE`, or `default`. Empty where nobody named one and there is none.
pub(super) fn read(named: Option<&str>) -> Result<Profile, StoreError> {
    let environment = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = environment("HOME").map(PathBuf::from);
    let file = |variable: &str, name: &str| {
        let beside_home = || home.as_ref().map(|home| home.join(".aws").join(name));
        environment(variable).map(PathBuf::from).or_else(beside_home)
    };
    let files = [file("AWS_CONFIG_FILE", "config"), file("AWS_SHARED_CREDENTIALS_FILE", "credentials")];
    let named = named.map(OsString::from).or_else(|| environment("AWS_PROFILE"));
    let name = named.as_ref().map_or("default".into(), |name| name.to_string_lossy());
    let mut found = BTreeMap::new();
    for path in files.iter().flatten() {
        read_file(path, &name, &mut found);
    }
    if found.is_empty() && named.is_some() {
        return Err(StoreError::Address(format!(
            "there is no profile '{name}' in ~/.aws/config or ~/.aws/credentials; name one that is there"
        )));
    }
    let profile: Profile =
        KEYS.iter().filter_map(|(key, ours)| Some((*ours, found.get(*key)?.clone()))).collect();
    let elsewhere = ELSEWHERE.iter().find(|key| found.contains_key(**key));
    match elsewhere {
        Some(key) if named.is_some() && !profile.contains_key("aws_access_key_id") => {
            Err(StoreError::Address(format!(
                "profile '{name}' has its credentials by {key}, which is not followed here: put them into the environment first, \
                 by `eval \"$(aws configure export-credentials --profile {name} --format env)\"`"
            )))
        }
        _ => Ok(profile),
    }
}

/// Adds what the section of profile `name` in the file at `path` says.
fn read_file(path: &Path, name: &str, found: &mut BTreeMap<String, String>) {
    let Ok(text) = std::fs::read_to_string(path) else { return };
    let mut here = false;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let section = section.trim();
            here = section.strip_prefix("profile ").unwrap_or(section).trim() == name;
        } else if here && let Some((key, value)) = line.split_once('=') {
            found.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_told_apart() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "[default]\nregion = a\n# aws_access_key_id = no\n[profile other]\nregion=b\naws_access_key_id = KEY\n";
        std::fs::write(file.path(), text).unwrap();
        let read = |name| {
            let mut found = BTreeMap::new();
            read_file(file.path(), name, &mut found);
            found.into_iter().collect::<Vec<_>>()
        };
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(read("default"), [pair("region", "a")]);
        assert_eq!(read("other"), [pair("aws_access_key_id", "KEY"), pair("region", "b")]);
        assert_eq!(read("none"), []);
    }
}
