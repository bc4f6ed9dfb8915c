//! Checks of the lengths of functions.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::tree::SourceFile;

/// Most lines of a Rust function.
const MAX_RUST_LINES: usize = 70;

/// Most lines of a Python function. They include the documentation of its arguments, which is inside of it.
const MAX_PYTHON_LINES: usize = 100;

/// Finds every function in `files` (Rust and Python) that is too long, and every Rust file that cannot be
/// parsed.
pub fn complaints(files: &[SourceFile]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        let Some(text) = &file.text else { continue };
        let (functions, most) = if file.has_extension(&["rs"]) {
            match rust_functions(text) {
                Ok(functions) => (functions, MAX_RUST_LINES),
                Err(error) => {
                    found.push(format!("{}:{}: {error}", file.name, error.span().start().line));
                    continue;
                }
            }
        } else if file.has_extension(&["py"]) {
            (python_functions(text), MAX_PYTHON_LINES)
        } else {
            continue;
        };
        for Function { name, line, lines } in functions {
            if lines > most {
                found.push(format!("{}:{line}: `{name}` has {lines} lines, at most {most}", file.name));
            }
        }
    }
    found
}

#[derive(Debug, PartialEq)]
struct Function {
    name: String,
    line: usize,
    lines: usize,
}

fn rust_functions(text: &str) -> Result<Vec<Function>, syn::Error> {
    #[derive(Default)]
    struct Collector(Vec<Function>);
    impl Collector {
        fn take(&mut self, signature: &syn::Signature, block: &syn::Block) {
            let (line, end) = (signature.span().start().line, block.span().end().line);
            self.0.push(Function { name: signature.ident.to_string(), line, lines: end + 1 - line });
        }
    }
    impl<'ast> Visit<'ast> for Collector {
        fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
            self.take(&function.sig, &function.block);
            visit::visit_item_fn(self, function);
        }
        fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
            self.take(&function.sig, &function.block);
            visit::visit_impl_item_fn(self, function);
        }
        fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
            if let Some(block) = &function.default {
                self.take(&function.sig, block);
            }
            visit::visit_trait_item_fn(self, function);
        }
    }
    let mut collector = Collector::default();
    collector.visit_file(&syn::parse_file(text)?);
    Ok(collector.0)
}

/// Finds Python functions by their indentation, which is exact enough to limit their length.
fn python_functions(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let head = line.trim_start();
        let Some(rest) = head.strip_prefix("async def ").or_else(|| head.strip_prefix("def ")) else {
            continue;
        };
        let depth = indent(line);
        let inside = |line: &&&str| {
            // The bracket that closes the arguments has the indentation of `def`.
            line.trim().is_empty() || line.trim_start().starts_with(')') || indent(line) > depth
        };
        let body = lines[start + 1..].iter().take_while(inside);
        // Blank lines after the body are not part of the function.
        let length =
            1 + body.enumerate().filter(|(_, l)| !l.trim().is_empty()).map(|(i, _)| i + 1).max().unwrap_or(0);
        let name = rest.split('(').next().unwrap_or_default().to_owned();
        found.push(Function { name, line: start + 1, lines: length });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_functions_above_the_limits_are_found() {
        let file = |name: &str, text: String| SourceFile {
            name: name.to_owned(),
            bytes: text.len() as u64,
            text: Some(text),
        };
        let rust = |lines: usize| file("a.rs", format!("fn a() {{\n{}}}\n", "    x();\n".repeat(lines - 2)));
        let python = |lines: usize| file("a.py", format!("def a():\n{}", "    x()\n".repeat(lines - 1)));
        assert_eq!(complaints(&[rust(MAX_RUST_LINES), python(MAX_PYTHON_LINES)]), Vec::<String>::new());
        assert_eq!(
            complaints(&[rust(71), python(101)]),
            ["a.rs:1: `a` has 71 lines, at most 70", "a.py:1: `a` has 101 lines, at most 100"]
        );
        assert_eq!(complaints(&[file("b.rs", "fn (\n".to_owned())]).len(), 1);
    }

    #[test]
    fn rust_functions_are_measured() {
        let text = "fn a() {\n    1;\n}\n\
                    impl B {\n    fn c(\n        &self,\n    ) {\n        fn d() {}\n    }\n}\n";
        let found = rust_functions(text).unwrap();
        let names: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
        assert_eq!(names, [("a", 1, 3), ("c", 5, 5), ("d", 8, 1)]);
    }

    #[test]
    fn python_functions_are_measured() {
        let text = "def a():\n    x\n\n    y\nclass B:\n    def c(self):\n        return 1\n    z = 2\n";
        let found = python_functions(text);
        let names: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
        assert_eq!(names, [("a", 1, 4), ("c", 6, 2)]);
    }
}
