//! Detects duplicate keys in a JSON object. Parsers differ in which of them they use, so such a
//! body is refused before parsing (S27).

use std::borrow::Cow;
use std::collections::HashSet;

/// Maximum number of keys in a list. More keys are stored in a set, because a list is searched
/// linearly.
const MAX_LISTED_KEYS: usize = 16;

/// Returns the first duplicate key. Returns `None` for text that is not JSON.
pub(super) fn first_duplicate(json: &[u8]) -> Option<String> {
    // The open objects with their keys, innermost last. An open array is `None`.
    let mut containers: Vec<Option<Keys<'_>>> = Vec::new();
    let (mut position, mut expects_key) = (0, false);
    while let Some(byte) = json.get(position) {
        match byte {
            b'{' => {
                containers.push(Some(Keys::default()));
                expects_key = true;
            }
            b'[' => {
                containers.push(None);
                expects_key = false;
            }
            b'}' | b']' => {
                containers.pop();
                expects_key = false;
            }
            b',' => expects_key = matches!(containers.last(), Some(Some(_))),
            b'"' => {
                let end = end_of_string(json, position)?;
                if expects_key && let Some(Some(keys)) = containers.last_mut() {
                    let key = &json[position + 1..end];
                    if !keys.insert(unescaped(key)) {
                        return Some(String::from_utf8_lossy(key).into_owned());
                    }
                    expects_key = false;
                }
                position = end;
            }
            _ => {}
        }
        position += 1;
    }
    None
}

/// Returns the position of the closing quote of the string that begins at `start`.
fn end_of_string(json: &[u8], start: usize) -> Option<usize> {
    let mut position = start + 1;
    loop {
        match json.get(position)? {
            b'"' => return Some(position),
            b'\\' => position += 2,
            _ => position += 1,
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
    list: Vec<Cow<'a, [u8]>>,
    set: HashSet<Cow<'a, [u8]>>,
}

impl<'a> Keys<'a> {
    /// Inserts a key. Returns false for a duplicate.
    fn insert(&mut self, key: Cow<'a, [u8]>) -> bool {
        if self.set.is_empty() {
            if self.list.contains(&key) {
                return false;
            }
            self.list.push(key);
            if self.list.len() > MAX_LISTED_KEYS {
                self.set.extend(self.list.drain(..));
            }
            return true;
        }
        self.set.insert(key)
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
