//! Licences of what the project depends on.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The licences that `deny.toml` allows, by their SPDX names.
///
/// # Errors
/// A sentence, if the text is not TOML or has no `[licenses] allow` list of strings.
pub fn allowed(deny_toml: &str) -> Result<Vec<String>, String> {
    let table: toml::Table = deny_toml.parse().map_err(|e| format!("deny.toml is not TOML: {e}"))?;
    let list = table.get("licenses").and_then(|licences| licences.get("allow"));
    let list = list.and_then(toml::Value::as_array).ok_or("deny.toml has no list `allow` in [licenses]")?;
    let names = list.iter().map(|name| name.as_str().map(str::to_owned));
    names.collect::<Option<Vec<_>>>().ok_or_else(|| "deny.toml: `allow` holds more than strings".to_owned())
}

/// Every package that the workspace at `root` can pull in, on any platform: `(name and version, licence)`.
/// The licence is empty for a package that names none.
///
/// # Errors
/// A sentence, if cargo cannot be run or says what is not expected.
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
    let packages = metadata["packages"].as_array().ok_or("cargo metadata names no packages")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let row = |package: &Value| {
        (format!("{} {}", text(&package["name"]), text(&package["version"])), text(&package["license"]))
    };
    Ok(packages.iter().map(row).collect())
}

/// What is wrong with `licence` (an SPDX expression, or the older `A/B`) if only `allowed` may be used.
pub fn complaint(licence: &str, allowed: &[String]) -> Option<String> {
    if licence.is_empty() {
        return Some("names no licence".to_owned());
    }
    let expression = match spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX) {
        Ok(expression) => expression,
        Err(error) => return Some(format!("has a licence that is no SPDX expression: {error}")),
    };
    // An exception (`WITH LLVM-exception`) only ever grants more than the licence before it.
    let permits = |requirement: &spdx::LicenseReq| {
        requirement.license.id().is_some_and(|id| allowed.iter().any(|name| name == id.name))
    };
    (!expression.evaluate(permits)).then(|| format!("has the licence '{licence}', which is not allowed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_weighed() {
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
