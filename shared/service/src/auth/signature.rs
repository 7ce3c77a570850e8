//! How tokens are signed: Ed25519, and nothing else.
//!
//! The library of tokens knows a dozen ways, and brings the code of all of them, RSA with a known
//! hole in it among them (RUSTSEC-2023-0071). It takes whoever signs and checks from outside, so it
//! gets the one way that S8 allows, made of the library that reads the keys anyway. Whatever else a
//! token names is refused here as well, should the rules of a verifier ever allow it.

use std::sync::Once;

use ed25519_dalek::pkcs8::DecodePrivateKey as _;
use ed25519_dalek::{Signature, SigningKey, VerifyingKey};
use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Signer, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};

static ONE_WAY: CryptoProvider = CryptoProvider {
    signer_factory: signer,
    verifier_factory: verifier,
    // Of keys in JSON, which nobody here has.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Before the first token is made or checked; harmless to call again.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Refused only where somebody chose before us, and nobody else in this process has tokens.
        let _ = ONE_WAY.install_default();
    });
}

struct Signs(SigningKey);

impl Signer<Vec<u8>> for Signs {
    fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, signature::Error> {
        Ok(self.0.sign(message).to_vec())
    }
}

impl JwtSigner for Signs {
    fn algorithm(&self) -> Algorithm {
        Algorithm::EdDSA
    }
}

struct Checks(VerifyingKey);

impl Verifier<Vec<u8>> for Checks {
    fn verify(&self, message: &[u8], signed: &Vec<u8>) -> Result<(), signature::Error> {
        self.0.verify(message, &Signature::from_slice(signed)?)
    }
}

impl JwtVerifier for Checks {
    fn algorithm(&self) -> Algorithm {
        Algorithm::EdDSA
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the library asks for it so"
)]
fn signer(way: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    only_ours(*way)?;
    let key = SigningKey::from_pkcs8_der(key.as_bytes()).map_err(|_| ErrorKind::InvalidEddsaKey)?;
    Ok(Box::new(Signs(key)))
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the library asks for it so"
)]
fn verifier(way: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    only_ours(*way)?;
    let key = VerifyingKey::try_from(key.try_get_as_bytes()?);
    Ok(Box::new(Checks(
        key.map_err(|_| ErrorKind::InvalidEddsaKey)?,
    )))
}

fn only_ours(way: Algorithm) -> Result<(), Error> {
    match way {
        Algorithm::EdDSA => Ok(()),
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s8_no_other_way_is_known() {
        let (secret, public) = ([7; 32], [9; 32]);
        for way in [Algorithm::HS256, Algorithm::RS256, Algorithm::ES256] {
            let signs = signer(&way, &EncodingKey::from_secret(&secret)).err();
            let checks = verifier(&way, &DecodingKey::from_secret(&public)).err();
            for refused in [signs, checks] {
                let kind = refused.map(Error::into_kind);
                assert_eq!(kind, Some(ErrorKind::InvalidAlgorithm), "{way:?}");
            }
        }
        let short = verifier(&Algorithm::EdDSA, &DecodingKey::from_ed_der(&public[1..])).err();
        let kind = short.map(Error::into_kind);
        assert_eq!(kind, Some(ErrorKind::InvalidEddsaKey));
    }
}
