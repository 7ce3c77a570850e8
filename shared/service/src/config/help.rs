//! Text of `--help`: every setting with its default and its meaning, from the comments of the
//! definitions.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::names;

/// Width of the help in columns.
const WIDTH: usize = 96;
/// Indentation of the meaning of a setting.
const INDENT: &str = "      ";

/// A settings struct. Its fields have defaults and comments.
pub trait SettingsStruct: Serialize + DeserializeOwned + JsonSchema {}
impl<T: Serialize + DeserializeOwned + JsonSchema> SettingsStruct for T {}

/// One setting of a program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Setting {
    pub name: String,
    /// Meaning and unit in sentences. Empty if the definition has no comment.
    pub meaning: String,
    pub default: String,
}

impl Setting {
    pub fn flag(&self) -> String {
        format!("--{}", self.name.replace('_', "-"))
    }

    pub fn variable(&self) -> String {
        format!("{}{}", names::PREFIX, names::to_variable(&self.name))
    }
}

/// Returns the default of every setting, by name.
///
/// # Errors
/// If a setting has no default.
pub(super) fn defaults<T: SettingsStruct>() -> anyhow::Result<Map<String, Value>> {
    let default: T = serde_json::from_value(Value::Object(Map::new()))
        .context("every setting needs a default")?;
    match serde_json::to_value(default)? {
        Value::Object(defaults) => Ok(defaults),
        _ => bail!("settings are a struct with named fields"),
    }
}

/// Returns the settings of a program, by name.
///
/// # Errors
/// If a setting has no default.
pub fn all_settings<T: SettingsStruct>() -> anyhow::Result<Vec<Setting>> {
    let schema = schemars::schema_for!(T).to_value();
    let meaning_of = |name: &str| {
        let text = schema["properties"][name]["description"].as_str();
        without_codes(text.unwrap_or_default())
    };
    let defaults = defaults::<T>()?;
    let defaults = defaults.iter().map(|(name, value)| Setting {
        name: name.clone(),
        meaning: meaning_of(name),
        default: match value {
            Value::Null => "none".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        },
    });
    Ok(defaults.collect())
}

/// Returns a comment as one line. Codes of rules are removed, because they mean nothing to users.
fn without_codes(comment: &str) -> String {
    let mut text = comment.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut search_from = 0;
    while let Some(open) = text[search_from..]
        .find(" (")
        .map(|offset| search_from + offset)
    {
        let Some(close) = text[open..].find(')').map(|offset| open + offset) else {
            break;
        };
        if text[open + 2..close].split(", ").all(is_code) {
            text.replace_range(open..=close, "");
        } else {
            search_from = close;
        }
    }
    text
}

/// Returns whether the word is the code of a rule: capital letters, then a number.
fn is_code(word: &str) -> bool {
    let number = word.trim_start_matches(|c: char| c.is_ascii_uppercase());
    let digits = number.strip_prefix('-').unwrap_or(number);
    number.len() < word.len()
        && !digits.is_empty()
        && digits.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// Returns the text of `--help`.
pub(super) fn help_text<T: SettingsStruct>(program: &str) -> anyhow::Result<String> {
    let program_name = names::to_variable(program);
    let mut text = format!(
        "hayward-{program} [--config FILE] [--SETTING VALUE]...\n\n\
         Stronger first: a flag, HAYWARD_{program_name}_SETTING, HAYWARD_SETTING, the TOML file\n\
         (--config or HAYWARD_CONFIG), the default. HAYWARD_SETTING_FILE names a file that\n\
         holds the value. Settings of other programs are passed over, unknown ones refused.\n\n\
         Settings, with their defaults in brackets:\n"
    );
    for setting in all_settings::<T>()? {
        text.push('\n');
        text.push_str(&format_setting(&setting));
    }
    Ok(text)
}

/// Returns a setting as a few lines of text.
pub fn format_setting(setting: &Setting) -> String {
    let mut text = String::new();
    let (flag, variable) = (setting.flag(), setting.variable());
    let _ = writeln!(text, "  {flag}  {variable}  [{}]", setting.default);
    // A full line makes the first word begin a new one.
    let mut column = WIDTH;
    for word in setting.meaning.split(' ') {
        if column + 1 + word.chars().count() > WIDTH {
            if column != WIDTH {
                text.push('\n');
            }
            text.push_str(INDENT);
            column = INDENT.len();
        } else {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += word.chars().count();
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_rules_are_removed_and_other_parentheses_stay() {
        let comment = "Allows\nit. Default false (S3); more (two of them) is\nnot (S20, R-4.1).";
        assert_eq!(
            without_codes(comment),
            "Allows it. Default false; more (two of them) is not."
        );
    }

    #[test]
    fn a_paragraph_fits_the_width_of_a_terminal() {
        let setting = Setting {
            name: "lease_ms".to_owned(),
            meaning: ["word"; 60].join(" "),
            default: "5000".to_owned(),
        };
        let text = format_setting(&setting);
        assert!(text.starts_with("  --lease-ms  HAYWARD_LEASE_MS  [5000]\n      word"));
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert_eq!(text.matches("word").count(), 60);
    }
}
