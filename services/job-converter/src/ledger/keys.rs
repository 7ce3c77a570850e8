//! Idempotency keys and their answers in memory (A4). Bounded in number and age.

use std::collections::VecDeque;
use std::sync::Arc;

use hayward_vocabulary::Timestamp;
use rustc_hash::FxHashMap;
use uuid::Uuid;

use crate::model::Once;
use crate::store::keys::KeyRow;

pub const KEPT_MS: i64 = 24 * 3600 * 1000;
/// Keys deleted per round, at most.
const PIECE: usize = 2_000;

#[derive(Default)]
pub struct Keys {
    known: FxHashMap<Uuid, (Uuid, Arc<str>)>,
    order: VecDeque<(i64, Uuid)>,
}

/// State of a key.
pub enum Known {
    Fresh,
    Same(Arc<str>),
    Other,
}

impl Keys {
    pub fn look(&self, once: Once) -> Known {
        match self.known.get(&once.key) {
            None => Known::Fresh,
            Some((request, answer)) if *request == once.request => Known::Same(answer.clone()),
            Some(_) => Known::Other,
        }
    }

    pub fn restore(&mut self, row: KeyRow) {
        self.order.push_back((row.at_ms, row.key));
        self.known.insert(row.key, (row.request, row.answer.into()));
    }

    pub fn remember(&mut self, once: Once, at: Timestamp, answer: &Arc<str>) -> KeyRow {
        self.order.push_back((at.unix_ms(), once.key));
        self.known.insert(once.key, (once.request, answer.clone()));
        KeyRow {
            key: once.key,
            request: once.request,
            at_ms: at.unix_ms(),
            answer: answer.to_string(),
        }
    }

    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Removes keys beyond age and number, at most 2,000 per call.
    pub fn sweep(&mut self, now: Timestamp, limit: usize) -> Vec<Uuid> {
        let mut gone = Vec::new();
        while gone.len() < PIECE
            && let Some((at, key)) = self.order.front().copied()
            && (self.known.len() > limit || at < now.unix_ms() - KEPT_MS)
        {
            self.order.pop_front();
            self.known.remove(&key);
            gone.push(key);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_for_a_day_and_while_there_is_room() {
        let mut keys = Keys::default();
        let once = |number| Once {
            key: Uuid::from_u128(number),
            request: Uuid::nil(),
        };
        let start = Timestamp::from_unix_ms(0);
        for number in 0..3 {
            keys.remember(once(number), start, &"{}".into());
        }
        assert!(matches!(keys.look(once(0)), Known::Same(_)));
        let other = Once {
            request: Uuid::max(),
            ..once(0)
        };
        assert!(matches!(keys.look(other), Known::Other));
        assert_eq!(keys.sweep(start, 2), [Uuid::from_u128(0)]);
        assert!(matches!(keys.look(once(0)), Known::Fresh));
        assert!(keys.sweep(start.plus_ms(24 * 3600 * 1000), 2).is_empty());
        assert_eq!(keys.sweep(start.plus_ms(24 * 3600 * 1000 + 1), 2).len(), 2);
    }
}
