//! Detects duplicate keys in a JSON object. Parsers differ in which of them they use, so such a
//! body is refused before parsing (S27).

use std::borrow::Cow;
use std::collections::HashSet;

/// Most keys that are compared linearly. More keys are stored in a set.
const FEW: usize = 16;

/// Returns the first duplicate key. Returns `None` for text that is not JSON.
pub(super) fn first_duplicate(json: &[u8]) -> Option<String> {
    let mut open: Vec<Option<Keys<'_>>> = Vec::new();
    let (mut at, mut key_next) = (0, false);
    while let Some(byte) = json.get(at) {
        match byte {
            b'{' => {
                open.push(Some(Keys::default()));
                key_next = true;
            }
            b'[' => {
                open.push(None);
                key_next = false;
            }
            b'}' | b']' => {
                open.pop();
                key_next = false;
            }
            b',' => key_next = matches!(open.last(), Some(Some(_))),
            b'"' => {
                let end = end_of_string(json, at)?;
                if key_next && let Some(Some(keys)) = open.last_mut() {
                    let key = &json[at + 1..end];
                    if !keys.insert(unescaped(key)) {
                        return Some(String::from_utf8_lossy(key).into_owned());
                    }
                    key_next = false;
                }
                at = end;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns the position of the closing quote of the string that begins at `start`.
fn end_of_string(json: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match json.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Returns the key without escapes. Escaped and plain forms of a key are equal.
fn unescaped(key: &[u8]) -> Cow<'_, [u8]> {
    if !key.contains(&b'\\') {
        return Cow::Borrowed(key);
    }
    let quoted = [b"\"", key, b"\""].concat();
    match serde_json::from_slice::<String>(&quoted) {
        Ok(text) => Cow::Owned(text.into_bytes()),
        Err(_) => Cow::Borrowed(key),
    }
}

#[derive(Default)]
struct Keys<'a> {
    few: Vec<Cow<'a, [u8]>>,
    many: HashSet<Cow<'a, [u8]>>,
}

impl<'a> Keys<'a> {
    /// Inserts a key. Returns false for a duplicate.
    fn insert(&mut self, key: Cow<'a, [u8]>) -> bool {
        if self.many.is_empty() {
            if self.few.contains(&key) {
                return false;
            }
            self.few.push(key);
            if self.few.len() > FEW {
                self.many.extend(self.few.drain(..));
            }
            return true;
        }
        self.many.insert(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_twice_in_one_object_is_found() {
        let many: Vec<String> = (0..40).map(|number| format!("\"{number}\":1")).collect();
        let many = format!("{{{},\"7\":2}}", many.join(","));
        for (body, key) in [
            (r#"{"a":1,"a":2}"#, "a"),
            (r#"{"a":{"b":[1,{"c":1,"d":"}","c":2}]}}"#, "c"),
            (r#"{"a":[],"b":{},"a":2}"#, "a"),
            (r#"{"a":1,"\u0061":2}"#, r"\u0061"),
            (r#"{"a\"":1,"a\"":2}"#, r#"a\""#),
            (&many, "7"),
        ] {
            assert_eq!(
                first_duplicate(body.as_bytes()).as_deref(),
                Some(key),
                "{body}"
            );
        }
    }

    #[test]
    fn the_same_key_in_two_objects_is_allowed() {
        for body in [
            r#"{"a":{"a":1},"b":{"a":2}}"#,
            r#"[{"a":1},{"a":2}]"#,
            r#"{"a":"a","b":"a"}"#,
            r#"{"a":["a","a"]}"#,
            r#"{"a":"{\"a\":1,\"a\":2}"}"#,
            r#"{"a"#,
            "\"\\",
            "]]}}{",
        ] {
            assert_eq!(first_duplicate(body.as_bytes()), None, "{body}");
        }
    }
}
