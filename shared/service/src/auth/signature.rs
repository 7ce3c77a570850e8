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

static ED25519_PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: create_signer,
    verifier_factory: create_verifier,
    // Only keys in JSON would need these functions, and we do not use such keys.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Installs the provider. Call it before the first token is signed or verified. Further calls have
/// no effect.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // This fails only if a provider is already installed.
        let _ = ED25519_PROVIDER.install_default();
    });
}

struct Ed25519Signer(SigningKey);

impl Signer<Vec<u8>> for Ed25519Signer {
    fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, signature::Error> {
        Ok(self.0.sign(message).to_vec())
    }
}

impl JwtSigner for Ed25519Signer {
    fn algorithm(&self) -> Algorithm {
        Algorithm::EdDSA
    }
}

struct Ed25519Verifier(VerifyingKey);

impl Verifier<Vec<u8>> for Ed25519Verifier {
    fn verify(&self, message: &[u8], signature_bytes: &Vec<u8>) -> Result<(), signature::Error> {
        self.0
            .verify(message, &Signature::from_slice(signature_bytes)?)
    }
}

impl JwtVerifier for Ed25519Verifier {
    fn algorithm(&self) -> Algorithm {
        Algorithm::EdDSA
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the library requires this signature"
)]
fn create_signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    require_eddsa(*algorithm)?;
    let key = SigningKey::from_pkcs8_der(key.as_bytes()).map_err(|_| ErrorKind::InvalidEddsaKey)?;
    Ok(Box::new(Ed25519Signer(key)))
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the library requires this signature"
)]
fn create_verifier(
    algorithm: &Algorithm,
    key: &DecodingKey,
) -> Result<Box<dyn JwtVerifier>, Error> {
    require_eddsa(*algorithm)?;
    let key = VerifyingKey::try_from(key.try_get_as_bytes()?);
    Ok(Box::new(Ed25519Verifier(
        key.map_err(|_| ErrorKind::InvalidEddsaKey)?,
    )))
}

fn require_eddsa(algorithm: Algorithm) -> Result<(), Error> {
    match algorithm {
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
        for algorithm in [Algorithm::HS256, Algorithm::RS256, Algorithm::ES256] {
            let signer = create_signer(&algorithm, &EncodingKey::from_secret(&secret)).err();
            let verifier = create_verifier(&algorithm, &DecodingKey::from_secret(&public)).err();
            for refused in [signer, verifier] {
                let kind = refused.map(Error::into_kind);
                assert_eq!(kind, Some(ErrorKind::InvalidAlgorithm), "{algorithm:?}");
            }
        }
        let short_key =
            create_verifier(&Algorithm::EdDSA, &DecodingKey::from_ed_der(&public[1..])).err();
        let kind = short_key.map(Error::into_kind);
        assert_eq!(kind, Some(ErrorKind::InvalidEddsaKey));
    }
}
