//! Concurrent requests with the same key. Each test runs in many thread interleavings.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hayward_interleavings::{check, thread};

use super::*;

const DIGEST: RequestDigest = [7; 32];

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

/// Returns the response to a request, which is the number of the effect.
fn response(effect: u32) -> StoredResponse {
    StoredResponse {
        status: 201,
        headers: Vec::new(),
        body: effect.to_string().into(),
    }
}

/// Acts like a handler: one effect, and the same response to every repetition.
fn send_request(store: &KeyStore, effects: &AtomicU32) -> Option<StoredResponse> {
    match store.begin("ann", key("k"), DIGEST) {
        Ok(running) => {
            let response = response(effects.fetch_add(1, Ordering::SeqCst) + 1);
            running.complete(response.clone());
            Some(response)
        }
        Err(EarlierRequest::Done(response)) => Some(response),
        Err(EarlierRequest::Running) => None,
        Err(EarlierRequest::Mismatch) => panic!("the requests are equal"),
    }
}

#[test]
fn a_key_has_one_effect_and_one_response_in_any_interleaving() {
    check(2_000, || {
        let store = Arc::new(KeyStore::new(8));
        let effects = Arc::new(AtomicU32::new(0));
        let requests = [0; 3].map(|_| {
            let (store, effects) = (Arc::clone(&store), Arc::clone(&effects));
            thread::spawn(move || send_request(&store, &effects))
        });
        // A request that fails frees its key. Another request never reuses its result.
        let (failing, other) = (Arc::clone(&store), Arc::clone(&store));
        let failing = thread::spawn(move || drop(failing.begin("ben", key("k"), DIGEST)));
        let other = thread::spawn(move || other.begin("ben", key("k"), [8; 32]).map(drop).err());
        for request in requests {
            let received = request.join().unwrap();
            assert!(received.is_none_or(|received| received == response(1)));
        }
        failing.join().unwrap();
        let error = other.join().unwrap();
        assert!(matches!(error, None | Some(EarlierRequest::Mismatch)));
        assert_eq!(send_request(&store, &effects), Some(response(1)));
        assert_eq!(effects.load(Ordering::SeqCst), 1);
        assert!(store.begin("ben", key("k"), DIGEST).is_ok());
    });
}

#[test]
fn a_key_in_progress_is_never_dropped_in_any_interleaving() {
    check(2_000, || {
        let store = Arc::new(KeyStore::new(1));
        let running = store.begin("ann", key("k"), DIGEST).ok().unwrap();
        let others = ["a", "b"].map(|text| {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                if let Ok(running) = store.begin("ben", key(text), DIGEST) {
                    running.complete(response(9));
                }
            })
        });
        let repeated = store.begin("ann", key("k"), DIGEST).err();
        assert_eq!(repeated, Some(EarlierRequest::Running));
        running.complete(response(1));
        for other in others {
            other.join().unwrap();
        }
        let state = store.state.lock();
        // Three requests can be in progress at once, and each needs one entry.
        assert!(state.entries.len() <= 3 && state.order.len() == state.entries.len());
    });
}
