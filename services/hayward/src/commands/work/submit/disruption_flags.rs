//! Flags for the permitted disruption of work whose node is lost or drained.

use std::fmt::Display;

use hayward_job_converter_api::unreachable::{ReplaceAfter, UnreachableChoice, UnreachableWord};

use crate::value_parsers;

#[derive(Debug, Clone, Default, clap::Args)]
pub struct DisruptionFlags {
    /// Reaction when the node of a process cannot be reached: replace, wait, replace-after=10m, or
    /// exclusive (never two at once). Default: replace.
    #[arg(long, value_name = "WHAT", value_parser = parse_choice)]
    pub when_unreachable: Option<UnreachableChoice>,
    /// Maximum number of processes that a drain may end at one time. Default: any number. For a
    /// service, also the maximum that a new deployment replaces at one time. Default 1.
    #[arg(long, value_name = "N")]
    pub disruption_limit: Option<u64>,
}

fn parse_choice(text: &str) -> Result<UnreachableChoice, String> {
    let error_text = |reason: &dyn Display| {
        format!("{reason}; write replace, wait, exclusive or replace-after=10m")
    };
    let word = match text {
        "replace" => UnreachableWord::Replace,
        "wait" => UnreachableWord::Wait,
        "exclusive" => UnreachableWord::Exclusive,
        other => {
            let Some(after) = other.strip_prefix("replace-after=") else {
                return Err(error_text(&format_args!("{other:?} is not known")));
            };
            let replace_after_ms =
                value_parsers::parse_duration_ms(after).map_err(|error| error_text(&error))?;
            return Ok(UnreachableChoice::After(ReplaceAfter { replace_after_ms }));
        }
    };
    Ok(UnreachableChoice::Word(word))
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::WhenUnreachable;

    use super::*;

    #[test]
    fn every_choice_has_a_flag_value() {
        for (text, expected) in [
            ("replace", WhenUnreachable::Replace),
            ("wait", WhenUnreachable::Wait),
            ("exclusive", WhenUnreachable::Exclusive),
            (
                "replace-after=10m",
                WhenUnreachable::ReplaceAfter { ms: 600_000 },
            ),
        ] {
            assert_eq!(parse_choice(text).unwrap().meaning(), expected, "{text}");
        }
        for bad in [
            "",
            "Wait",
            "replace-after",
            "replace-after=10",
            "replace-after=x",
        ] {
            assert!(
                parse_choice(bad).unwrap_err().contains("replace-after=10m"),
                "{bad}"
            );
        }
    }
}
