//! Idempotency keys and their responses in memory, bounded in number and age (A4).

use std::collections::VecDeque;
use std::sync::Arc;

use hayward_vocabulary::Timestamp;
use rustc_hash::FxHashMap;
use uuid::Uuid;

use crate::model::RequestKey;
use crate::store::keys::KeyRow;

pub const RETENTION_MS: i64 = 24 * 3600 * 1000;
/// Maximum number of keys deleted per round.
const PIECE: usize = 2_000;

#[derive(Default)]
pub struct Keys {
    known: FxHashMap<Uuid, (Uuid, Arc<str>)>,
    order: VecDeque<(i64, Uuid)>,
}

/// State of a key.
pub enum KeyState {
    Fresh,
    Same(Arc<str>),
    Other,
}

impl Keys {
    pub fn lookup(&self, request_key: RequestKey) -> KeyState {
        match self.known.get(&request_key.key) {
            None => KeyState::Fresh,
            Some((request, answer)) if *request == request_key.request => {
                KeyState::Same(answer.clone())
            }
            Some(_) => KeyState::Other,
        }
    }

    pub fn restore(&mut self, row: KeyRow) {
        self.order.push_back((row.at_ms, row.key));
        self.known.insert(row.key, (row.request, row.answer.into()));
    }

    pub fn remember(
        &mut self,
        request_key: RequestKey,
        at: Timestamp,
        answer: &Arc<str>,
    ) -> KeyRow {
        self.order.push_back((at.unix_ms(), request_key.key));
        self.known
            .insert(request_key.key, (request_key.request, answer.clone()));
        KeyRow {
            key: request_key.key,
            request: request_key.request,
            at_ms: at.unix_ms(),
            answer: answer.to_string(),
        }
    }

    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Removes keys beyond the limits of age and number, at most 2,000 per call.
    pub fn sweep(&mut self, now: Timestamp, limit: usize) -> Vec<Uuid> {
        let mut gone = Vec::new();
        while gone.len() < PIECE
            && let Some((at, key)) = self.order.front().copied()
            && (self.known.len() > limit || at < now.unix_ms() - RETENTION_MS)
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
    fn a_key_is_known_for_a_day_within_the_limit() {
        let mut keys = Keys::default();
        let request_key = |number| RequestKey {
            key: Uuid::from_u128(number),
            request: Uuid::nil(),
        };
        let start = Timestamp::from_unix_ms(0);
        for number in 0..3 {
            keys.remember(request_key(number), start, &"{}".into());
        }
        assert!(matches!(keys.lookup(request_key(0)), KeyState::Same(_)));
        let other = RequestKey {
            request: Uuid::max(),
            ..request_key(0)
        };
        assert!(matches!(keys.lookup(other), KeyState::Other));
        assert_eq!(keys.sweep(start, 2), [Uuid::from_u128(0)]);
        assert!(matches!(keys.lookup(request_key(0)), KeyState::Fresh));
        assert!(keys.sweep(start.plus_ms(24 * 3600 * 1000), 2).is_empty());
        assert_eq!(keys.sweep(start.plus_ms(24 * 3600 * 1000 + 1), 2).len(), 2);
    }
}
