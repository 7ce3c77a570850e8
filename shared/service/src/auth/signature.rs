//! Signatures of tokens: Ed25519 only (S8).
//!
//! The token library supports many algorithms, one with a known vulnerability (RUSTSEC-2023-0071).
//! It accepts an external provider, and this provider has only Ed25519. The verifier refuses other
//! algorithms too.

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
    // Only keys in JSON would need these functions, and we do not use such keys.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Installs the provider. Call it before the first token is signed or verified. Further calls have
/// no effect.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // This fails only if a provider is already installed.
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
    fn other_algorithms_are_refused() {
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
