//! Resource amounts as text: `10`, `500m`, `2G`, `512Mi`.

use hayward_rm_scheduler_domain::snapshot::queues::Amounts;
use hayward_vocabulary::quantity::{self, BadQuantity};
use serde_json::Value;

/// Parses an amount into the unit of its type: bytes for memory, thousandths for vcores and gpus,
/// and plain numbers for all others.
///
/// # Errors
/// Returns the fault and the expected form.
pub fn parse_amount(name: &str, text: &str) -> Result<u64, String> {
    let text = text.trim();
    let in_thousandths = name == "vcore" || name == "gpu";
    if text.starts_with('-') {
        return Err(format!("{text:?} is negative"));
    }
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    let number = if in_thousandths {
        quantity::parse_thousandths(unsigned)
    } else {
        quantity::parse_whole(unsigned)
    };
    number.map_err(|fault| match fault {
        BadQuantity::TooLarge => format!("{text:?} is too large"),
        BadQuantity::Invalid => {
            let example = if in_thousandths { " or `500m`" } else { "" };
            format!(
                "{text:?} is not an amount; \
                 write a whole number, such as `10`, `2G`, `512Mi`{example}"
            )
        }
    })
}

/// Returns an amount as text in the largest exact unit, such as `2 GiB`, `512 MiB` or `2.5`.
#[must_use]
pub fn amount_text(name: &str, amount: u64) -> String {
    const UNITS: [(u64, &str); 7] = [
        (1 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1_000_000_000, "GB"),
        (1 << 20, "MiB"),
        (1_000_000, "MB"),
        (1 << 10, "KiB"),
        (1, "bytes"),
    ];
    if name == "vcore" || name == "gpu" {
        let text = format!("{}.{:03}", amount / 1_000, amount % 1_000);
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let mut units = UNITS.iter().filter(|_| name == "memory" && amount > 0);
    match units.find(|(unit, _)| amount.is_multiple_of(*unit)) {
        Some((unit, unit_name)) => format!("{} {unit_name}", amount / unit),
        None => amount.to_string(),
    }
}

/// Parses amounts by type, such as `{"memory": "2G", "vcore": 4}`. Also returns the type and the
/// fault of each faulty entry. The type is empty if the value is not a map.
pub(crate) fn parse_amounts(value: &Value) -> (Amounts, Vec<(String, String)>) {
    let (mut amounts, mut faults) = (Amounts::new(), Vec::new());
    let Some(entries) = value.as_object() else {
        let detail = "must be a map of amounts by type, such as {\"memory\": \"2G\"}".to_owned();
        return (amounts, vec![(String::new(), detail)]);
    };
    for (name, value) in entries {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            other => other.to_string(),
        };
        let parsed = if name.is_empty() {
            Err("a resource type needs a name".to_owned())
        } else {
            parse_amount(name, &text)
        };
        match parsed {
            Ok(amount) => {
                amounts.insert(name.clone(), amount);
            }
            Err(detail) => faults.push((name.clone(), detail)),
        }
    }
    (amounts, faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_parsed_into_the_unit_of_their_type() {
        assert_eq!(parse_amount("vcore", "10"), Ok(10_000));
        assert_eq!(parse_amount("vcore", "500m"), Ok(500));
        assert_eq!(parse_amount("memory", "2G"), Ok(2_000_000_000));
        assert_eq!(parse_amount("memory", "512Mi"), Ok(512 << 20));
        assert_eq!(parse_amount("licence", "3"), Ok(3));
        assert_eq!(parse_amount("licence", "3k"), Ok(3_000));
    }

    #[test]
    fn an_invalid_amount_is_refused_with_the_expected_form() {
        for wrong in ["", "abc", "1.5", "5x", "500m", "99E99", "20E"] {
            assert!(parse_amount("memory", wrong).is_err(), "{wrong:?}");
        }
        assert!(parse_amount("memory", "-1").is_err_and(|it| it.contains("negative")));
    }
}
