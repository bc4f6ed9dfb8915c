//! Reads credentials, region and endpoint from the files in `~/.aws`.

use bathyal_store::StoreError;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The values of a profile, by the keys of the store's library.
pub(super) type Profile = BTreeMap<&'static str, String>;

/// The keys of the files, and those of the store's library.
const KEYS: [(&str, &str); 5] = [
    ("aws_access_key_id", "aws_access_key_id"),
    ("aws_secret_access_key", "aws_secret_access_key"),
    ("aws_session_token", "aws_session_token"),
    ("region", "aws_region"),
    ("endpoint_url", "aws_endpoint"),
];
/// Keys of profiles whose credentials are not in the files, which are not supported.
const UNSUPPORTED_KEYS: [&str; 4] = ["sso_session", "sso_start_url", "role_arn", "credential_process"];

/// Reads the profile `named`, or that of `AWS_PROFILE`, or `default`. Returns an empty profile if none was
/// named and there is no `default`.
pub(super) fn read(named: Option<&str>) -> Result<Profile, StoreError> {
    let environment = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = environment("HOME").map(PathBuf::from);
    let file = |variable: &str, name: &str| {
        let default_path = || home.as_ref().map(|home| home.join(".aws").join(name));
        environment(variable).map(PathBuf::from).or_else(default_path)
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
            "there is no profile '{name}' in ~/.aws/config or ~/.aws/credentials; choose one that exists"
        )));
    }
    let profile: Profile =
        KEYS.iter().filter_map(|(key, store_key)| Some((*store_key, found.get(*key)?.clone()))).collect();
    let unsupported = UNSUPPORTED_KEYS.iter().find(|key| found.contains_key(**key));
    match unsupported {
        Some(key) if named.is_some() && !profile.contains_key("aws_access_key_id") => {
            Err(StoreError::Address(format!(
                "profile '{name}' gets its credentials by {key}, which is not supported: export them to the \
                 environment first, with `eval \"$(aws configure export-credentials --profile {name} \
                 --format env)\"`"
            )))
        }
        _ => Ok(profile),
    }
}

/// Adds the values in the section of profile `name` of the file at `path`.
fn read_file(path: &Path, name: &str, found: &mut BTreeMap<String, String>) {
    let Ok(text) = std::fs::read_to_string(path) else { return };
    let mut in_section = false;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let section = section.trim();
            in_section = section.strip_prefix("profile ").unwrap_or(section).trim() == name;
        } else if in_section && let Some((key, value)) = line.split_once('=') {
            found.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_section_of_the_profile_is_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "[default]\nregion = a\n# aws_access_key_id = no\n[profile other]\nregion=b\n\
                    aws_access_key_id = KEY\n";
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
