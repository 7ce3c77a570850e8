//! Quantities in text form: `500m`, `10`, `2Gi`.

use hayward_vocabulary::Size;

const SUFFIXES: [(&str, u64); 12] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
];

/// A whole number with an optional suffix; `None` when it overflows.
fn plain(text: &str) -> Option<u64> {
    let suffix = SUFFIXES.iter().find(|(suffix, _)| text.ends_with(suffix));
    let (digits, unit) = match suffix {
        Some((suffix, unit)) => (text.strip_suffix(suffix)?, *unit),
        None => (text, 1),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// Thousandths: `500m` is 500, `10` is 10,000.
fn milli(text: &str) -> Option<u64> {
    match text.strip_suffix('m') {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
        Some(_) => None,
        None => plain(text)?.checked_mul(1_000),
    }
}

/// Sets one type of a size. `cpu` and `vcore` are the same; any other name is an extra.
pub(crate) fn set(size: &mut Size, name: &str, text: &str) -> Option<()> {
    match name {
        "memory" => size.memory_bytes = plain(text)?,
        "cpu" | "vcore" => size.cpu_milli = milli(text)?,
        "gpu" => size.gpu_milli = milli(text)?,
        _ => {
            size.extras.insert(name.to_owned(), plain(text)?);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_parse_with_their_suffixes() {
        for (text, amount) in [
            ("0", Some(0)),
            ("512M", Some(512_000_000)),
            ("2Gi", Some(2 << 30)),
            ("16E", Some(16_000_000_000_000_000_000)),
            ("19E", None),
            ("", None),
            ("Mi", None),
            ("-1", None),
            ("+1", None),
            ("1.5G", None),
            ("1 G", None),
            ("500m", None),
        ] {
            assert_eq!(plain(text), amount, "{text:?}");
        }
        for (text, amount) in [("10", Some(10_000)), ("500m", Some(500)), ("m", None)] {
            assert_eq!(milli(text), amount, "{text:?}");
        }
    }
}
