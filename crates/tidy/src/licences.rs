//! Checks of the licences of dependencies.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Reads the licences that `deny.toml` allows, as SPDX names.
///
/// # Errors
/// A sentence if the text is not TOML or has no `[licenses] allow` list of strings.
pub fn allowed(deny_toml: &str) -> Result<Vec<String>, String> {
    let table: toml::Table = deny_toml.parse().map_err(|e| format!("deny.toml is not TOML: {e}"))?;
    let list = table.get("licenses").and_then(|licences| licences.get("allow"));
    let list = list.and_then(toml::Value::as_array).ok_or("deny.toml has no list `allow` in [licenses]")?;
    let names = list.iter().map(|name| name.as_str().map(str::to_owned));
    let names = names.collect::<Option<Vec<_>>>();
    names.ok_or_else(|| "deny.toml: `allow` has an entry that is not a string".to_owned())
}

/// Lists every package that the workspace at `root` can depend on, on any platform: `(name and version,
/// licence)`. The licence is empty for a package without one.
///
/// # Errors
/// A sentence if cargo cannot be run or its output has an unexpected form.
pub fn packages(root: &Path) -> Result<Vec<(String, String)>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cannot run cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata is not JSON: {e}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata has no list of packages")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let row = |package: &Value| {
        (format!("{} {}", text(&package["name"]), text(&package["version"])), text(&package["license"]))
    };
    Ok(packages.iter().map(row).collect())
}

/// Checks `licence` (an SPDX expression, or the older `A/B`) against the `allowed` ones. Returns a predicate
/// of a sentence if it is not allowed.
pub fn complaint(licence: &str, allowed: &[String]) -> Option<String> {
    if licence.is_empty() {
        return Some("has no licence".to_owned());
    }
    let expression = match spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX) {
        Ok(expression) => expression,
        Err(error) => return Some(format!("has a licence that is not an SPDX expression: {error}")),
    };
    // An exception (`WITH LLVM-exception`) only adds permissions to the licence before it.
    let permits = |requirement: &spdx::LicenseReq| {
        requirement.license.id().is_some_and(|id| allowed.iter().any(|name| name == id.name))
    };
    (!expression.evaluate(permits)).then(|| format!("has the licence '{licence}', which is not allowed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_expressions_are_evaluated() {
        let allowed = allowed("[licenses]\nallow = [\"MIT\", \"Apache-2.0\"]\n").unwrap();
        let good = ["MIT", "MIT OR GPL-3.0-only", "MIT/Apache-2.0", "Apache-2.0 WITH LLVM-exception AND MIT"];
        for licence in good {
            assert_eq!(complaint(licence, &allowed), None, "{licence}");
        }
        for licence in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "", "free for all"] {
            assert!(complaint(licence, &allowed).is_some(), "{licence}");
        }
    }
}
