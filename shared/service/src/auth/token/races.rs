//! Verification of tokens while a key is withdrawn.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hayward_interleavings::{check, thread};

use super::*;
use crate::auth::{Keys, Scope};
use crate::runtime::clock::ManualClock;

/// Public keys in a file that can be replaced.
struct File {
    path: PathBuf,
    before: Vec<u8>,
    after: Vec<u8>,
}

impl File {
    fn holds(&self, keys: &[u8]) {
        let temporary = self.path.with_extension("new");
        std::fs::write(&temporary, keys).unwrap();
        std::fs::rename(temporary, &self.path).unwrap();
    }
}

fn public_key(dir: &Path) -> Vec<u8> {
    std::fs::read(dir.join("issuer.pub.pem")).unwrap()
}

fn token_by(keys: &Keys, clock: &Arc<ManualClock>) -> String {
    let issuer = keys.issuer(clock.clone()).unwrap();
    issuer.mint("ann", &[Scope::Submitter], 60_000).unwrap()
}

#[test]
fn tokens_of_a_withdrawn_key_are_refused_in_any_interleaving() {
    let dir = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| Keys::create(dir.path().join(name)).unwrap());
    let clock = Arc::new(ManualClock::default());
    let (stale, fresh) = (token_by(&old, &clock), token_by(&new, &clock));
    let file = File {
        path: dir.path().join("trusted.pem"),
        before: public_key(old.dir()),
        after: public_key(new.dir()),
    };
    check(300, move || {
        file.holds(&file.before);
        let verifier = Verifier::new(file.path.clone(), None, clock.clone()).unwrap();
        let verifier = Arc::new(verifier);
        let ask = |token: &str| {
            let (verifier, token) = (Arc::clone(&verifier), token.to_owned());
            thread::spawn(move || drop(verifier.verify(&token)))
        };
        let asking = [ask(&stale), ask(&stale), ask(&fresh)];
        let passed = verifier.accept(&stale).unwrap();
        file.holds(&file.after);
        verifier.reload_keys();
        let withdrawn = || {
            assert_eq!(verifier.verify(&stale).err(), Some(Refusal::Forged));
            assert_ne!(verifier.peek(&stale), TokenPeek::Verified);
            assert!(!verifier.still_accepts(&passed));
            assert!(verifier.verify(&fresh).is_ok());
            assert_eq!(verifier.peek(&fresh), TokenPeek::Verified);
        };
        withdrawn();
        for caller in asking {
            caller.join().unwrap();
        }
        withdrawn();
    });
}
