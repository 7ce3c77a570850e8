//! Verification of tokens while the key of their issuer is replaced. Each test runs in many thread
//! interleavings.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hayward_interleavings::{check, thread};

use super::*;
use crate::auth::{Keys, Scope};
use crate::runtime::clock::ManualClock;

/// Public keys in a file that can be replaced.
struct KeyFile {
    path: PathBuf,
    old_key: Vec<u8>,
    new_key: Vec<u8>,
}

impl KeyFile {
    fn replace(&self, keys: &[u8]) {
        let temporary = self.path.with_extension("new");
        std::fs::write(&temporary, keys).unwrap();
        std::fs::rename(temporary, &self.path).unwrap();
    }
}

fn public_key(dir: &Path) -> Vec<u8> {
    std::fs::read(dir.join("issuer.pub.pem")).unwrap()
}

fn mint_token(keys: &Keys, clock: &Arc<ManualClock>) -> String {
    let issuer = keys.issuer(clock.clone()).unwrap();
    issuer.mint("ann", &[Scope::Submitter], 60_000).unwrap()
}

#[test]
fn tokens_of_a_withdrawn_key_are_refused_in_any_interleaving() {
    let dir = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| Keys::create(dir.path().join(name)).unwrap());
    let clock = Arc::new(ManualClock::default());
    let (old_token, new_token) = (mint_token(&old, &clock), mint_token(&new, &clock));
    let file = KeyFile {
        path: dir.path().join("trusted.pem"),
        old_key: public_key(old.dir()),
        new_key: public_key(new.dir()),
    };
    check(300, move || {
        file.replace(&file.old_key);
        let verifier = Verifier::new(file.path.clone(), None, clock.clone()).unwrap();
        let verifier = Arc::new(verifier);
        let spawn_verify = |token: &str| {
            let (verifier, token) = (Arc::clone(&verifier), token.to_owned());
            thread::spawn(move || drop(verifier.verify(&token)))
        };
        let verifications = [
            spawn_verify(&old_token),
            spawn_verify(&old_token),
            spawn_verify(&new_token),
        ];
        let accepted = verifier.accept(&old_token).unwrap();
        file.replace(&file.new_key);
        verifier.reload_keys();
        let assert_withdrawn = || {
            assert_eq!(verifier.verify(&old_token).err(), Some(Refusal::Forged));
            assert_ne!(verifier.peek(&old_token), TokenPeek::Verified);
            assert!(!verifier.still_accepts(&accepted));
            assert!(verifier.verify(&new_token).is_ok());
            assert_eq!(verifier.peek(&new_token), TokenPeek::Verified);
        };
        assert_withdrawn();
        for verification in verifications {
            verification.join().unwrap();
        }
        assert_withdrawn();
    });
}
