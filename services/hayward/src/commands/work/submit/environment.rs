//! Variables of a program from files, from the shell of the submitter, and from flags (TC-71).

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail};

use super::{display_name, read_text};

/// Word that selects all variables of the shell but those of the session.
const ALL: &str = "ALL";
/// Beginnings of names that belong to the session of the submitter.
const SESSION_PREFIXES: [&str; 4] = ["HAYWARD_", "SSH_", "DBUS_", "XDG_"];
const SESSION_NAMES: [&str; 5] = ["DISPLAY", "PWD", "OLDPWD", "SHLVL", "_"];

/// Reads variables from a file with one `NAME=VALUE` in each line. Blank lines and lines that begin
/// with `#` are skipped. A value is the rest of its line, without quotes or expansion.
pub fn read_file(file: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    parse(&read_text(file)?).with_context(|| display_name(file))
}

fn parse(text: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let mut variables = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once('=') {
            Some((name, value)) if is_name(name) => {
                variables.insert(name.to_owned(), value.to_owned());
            }
            Some((name, _)) => bail!("line {}: {name:?} is no name of a variable", index + 1),
            None => bail!("line {}: write NAME=VALUE", index + 1),
        }
    }
    Ok(variables)
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// Copies variables of the shell. `names` are separated by commas, or `ALL`.
pub fn export(
    names: &str,
    shell: impl Iterator<Item = (String, String)>,
) -> anyhow::Result<BTreeMap<String, String>> {
    let shell: BTreeMap<String, String> = shell.collect();
    if names == ALL {
        let of_program = shell.into_iter().filter(|(name, _)| !is_of_session(name));
        return Ok(of_program.collect());
    }
    let names = names.split(',').map(str::trim);
    names
        .map(|name| {
            let value = shell.get(name).with_context(|| {
                format!("--export: the variable {name:?} is not set in this shell")
            })?;
            Ok((name.to_owned(), value.clone()))
        })
        .collect()
}

fn is_of_session(name: &str) -> bool {
    SESSION_NAMES.contains(&name)
        || SESSION_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_the_rest_of_its_line() {
        let text = "# comment\n\nA=1\nB= two words \nC=x=\"y\"\nA=3\n";
        let variables = parse(text).unwrap();
        let expected = [("A", "3"), ("B", " two words "), ("C", "x=\"y\"")];
        let found: Vec<_> = variables
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_fault_names_its_line() {
        for (text, reason) in [
            ("A=1\nexport B=2", "line 2: \"export B\" is no name"),
            ("\n=3", "line 2: \"\" is no name"),
            ("PATH", "line 1: write NAME=VALUE"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.starts_with(reason), "{message}");
        }
    }

    #[test]
    fn all_variables_but_those_of_the_session_are_exported() {
        let shell = || {
            let names = [
                "PATH",
                "HAYWARD_STATE",
                "SSH_AUTH_SOCK",
                "_",
                "PWD",
                "MODEL",
            ];
            names
                .into_iter()
                .map(|name| (name.to_owned(), "v".to_owned()))
        };
        let exported = |names| {
            export(names, shell())
                .unwrap()
                .into_keys()
                .collect::<Vec<_>>()
        };
        assert_eq!(exported("ALL"), ["MODEL", "PATH"]);
        assert_eq!(exported("MODEL, PWD"), ["MODEL", "PWD"]);
        let message = export("NO", shell()).unwrap_err().to_string();
        assert_eq!(
            message,
            "--export: the variable \"NO\" is not set in this shell"
        );
    }
}
