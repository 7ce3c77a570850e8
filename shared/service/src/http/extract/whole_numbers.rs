//! Rewrites whole numbers with a zero fraction: `1.0` becomes `1`. JSON has one kind of number, and
//! the parser of integers refuses `1.0`.

use serde_json::{Number, Value};

/// Largest float that is an exact integer.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

/// Returns the JSON without such fractions. Returns `None` if it has no such number.
pub(super) fn normalized(json: &[u8]) -> Option<Vec<u8>> {
    let mut value = serde_json::from_slice(json).ok()?;
    if normalize_whole_numbers(&mut value) > 0 {
        return serde_json::to_vec(&value).ok();
    }
    None
}

/// Rewrites such numbers in place. Returns how many there were.
pub fn normalize_whole_numbers(value: &mut Value) -> usize {
    match value {
        Value::Number(number) => to_integer(number).map_or(0, |integer| {
            *number = integer;
            1
        }),
        Value::Array(items) => items.iter_mut().map(normalize_whole_numbers).sum(),
        Value::Object(fields) => fields.values_mut().map(normalize_whole_numbers).sum(),
        _ => 0,
    }
}

fn to_integer(number: &Number) -> Option<Number> {
    let float = number.as_f64().filter(|_| number.is_f64())?;
    let is_whole = float.fract() == 0.0 && float.abs() <= MAX_EXACT_INTEGER;
    let text = is_whole.then(|| format!("{float:.0}"))?;
    text.parse::<i64>().ok().map(Number::from)
}

#[cfg(test)]
mod tests {
    use super::normalized;

    fn normalized_text(json: &str) -> Option<String> {
        normalized(json.as_bytes()).map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn whole_numbers_are_rewritten() {
        let found = normalized_text(r#"{"a":[1.0,-2e3,0.5],"b":{"c":7}}"#);
        assert_eq!(found.unwrap(), r#"{"a":[1,-2000,0.5],"b":{"c":7}}"#);
        assert_eq!(normalized_text("-0.0").unwrap(), "0");
    }

    #[test]
    fn other_numbers_and_invalid_json_stay() {
        for json in ["1", "0.5", "1e300", "9007199254740994.0", "[1.0", "{} 1.0"] {
            assert_eq!(normalized_text(json), None, "{json}");
        }
    }
}
