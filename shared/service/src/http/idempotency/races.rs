//! Concurrent requests with the same key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hayward_interleavings::{check, thread};

use super::*;

const DIGEST: RequestDigest = [7; 32];

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

/// Returns the response to a request, which is the number of the effect.
fn answer(effect: u32) -> Answer {
    Answer {
        status: 201,
        headers: Vec::new(),
        body: effect.to_string().into(),
    }
}

/// Acts like a handler: one effect, and the same response to every repetition.
fn ask(memory: &KeyStore, effects: &AtomicU32) -> Option<Answer> {
    match memory.begin("ann", key("k"), DIGEST) {
        Ok(running) => {
            let done = answer(effects.fetch_add(1, Ordering::SeqCst) + 1);
            running.done(done.clone());
            Some(done)
        }
        Err(Earlier::Done(answer)) => Some(answer),
        Err(Earlier::Running) => None,
        Err(Earlier::Mismatch) => panic!("the requests are equal"),
    }
}

#[test]
fn a_key_has_one_effect_and_one_answer_in_any_interleaving() {
    check(2_000, || {
        let memory = Arc::new(KeyStore::new(8));
        let effects = Arc::new(AtomicU32::new(0));
        let asking = [0; 3].map(|_| {
            let (memory, effects) = (Arc::clone(&memory), Arc::clone(&effects));
            thread::spawn(move || ask(&memory, &effects))
        });
        // A request that fails frees its key. Another request never reuses its result.
        let (failing, other) = (Arc::clone(&memory), Arc::clone(&memory));
        let failing = thread::spawn(move || drop(failing.begin("ben", key("k"), DIGEST)));
        let other = thread::spawn(move || other.begin("ben", key("k"), [8; 32]).map(drop).err());
        for caller in asking {
            let answered = caller.join().unwrap();
            assert!(answered.is_none_or(|answered| answered == answer(1)));
        }
        failing.join().unwrap();
        let refused = other.join().unwrap();
        assert!(matches!(refused, None | Some(Earlier::Mismatch)));
        assert_eq!(ask(&memory, &effects), Some(answer(1)));
        assert_eq!(effects.load(Ordering::SeqCst), 1);
        assert!(memory.begin("ben", key("k"), DIGEST).is_ok());
    });
}

#[test]
fn a_key_in_progress_is_never_dropped_in_any_interleaving() {
    check(2_000, || {
        let memory = Arc::new(KeyStore::new(1));
        let running = memory.begin("ann", key("k"), DIGEST).ok().unwrap();
        let others = ["a", "b"].map(|text| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                if let Ok(running) = memory.begin("ben", key(text), DIGEST) {
                    running.done(answer(9));
                }
            })
        });
        let again = memory.begin("ann", key("k"), DIGEST).err();
        assert_eq!(again, Some(Earlier::Running));
        running.done(answer(1));
        for other in others {
            other.join().unwrap();
        }
        let state = memory.entries.lock();
        // Three requests can be in progress at once, and each needs one entry.
        assert!(state.entries.len() <= 3 && state.order.len() == state.entries.len());
    });
}
