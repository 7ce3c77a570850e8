//! One audit record, and the hash chain of all records. The code is pure, so an exported record can
//! be verified anywhere.

use std::fmt;
use std::str::FromStr;

use hayward_vocabulary::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

/// A SHA-256, in hexadecimal digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, pattern = "^[0-9a-f]{64}$")]
pub struct Digest(pub [u8; 32]);

impl Digest {
    pub(crate) fn from_stored(bytes: &[u8]) -> Self {
        // A digest of another length is invalid. The default value fails the verification.
        Self(bytes.try_into().unwrap_or_default())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Error for a text that is not a digest.
#[derive(Debug, thiserror::Error)]
#[error("a digest has 64 hexadecimal digits")]
pub struct BadDigest;

impl FromStr for Digest {
    type Err = BadDigest;
    fn from_str(text: &str) -> Result<Self, BadDigest> {
        let digits = text.as_bytes();
        let mut digest = [0; 32];
        if digits.len() != 64 || !text.bytes().all(|it| it.is_ascii_hexdigit()) {
            return Err(BadDigest);
        }
        for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| BadDigest)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| BadDigest)?;
        }
        Ok(Self(digest))
    }
}

impl TryFrom<String> for Digest {
    type Error = BadDigest;
    fn try_from(text: String) -> Result<Self, BadDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

/// Result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditOutcome {
    /// The change is in the commit that the record names.
    Committed,
    /// The request changed nothing; `status` is the status of the answer.
    Refused,
}

impl AuditOutcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Refused => "refused",
        }
    }
}

/// A change with its actor, or a refused request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditRecord {
    /// Number of the record. Numbers have no gaps and begin with the first record of the service.
    pub number: u64,
    /// Revision of the commit; for a refusal, the last revision before it.
    pub revision: u64,
    pub at: Timestamp,
    pub outcome: AuditOutcome,
    /// Status of the answer to a refused request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Name in the token of the request; empty without a valid token. The service itself, for its
    /// own decisions and for reports of the fleet.
    pub actor: String,
    /// User that the actor represented; the actor itself if it represented no other user.
    pub subject: String,
    /// Kind of actor: `operator`, `submitter`, `stranger`, …; `fleet` if the record sums up the
    /// reports and decisions of one commit.
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    pub method: String,
    /// Route as the description of the API names it.
    pub route: String,
    /// Path of the request; for `fleet`, the number of reports by kind of sender.
    pub object: String,
    /// First published entry that changed: publication, scope and key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// Number of requests that this record stands for.
    pub requests: u64,
    /// Number of published entries that changed.
    pub changed: u64,
    /// Digest of these entries before the change; absent if none existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest_before: Option<Digest>,
    /// Digest of these entries after the change; absent if none remains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest_after: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// Hash of the fields above and of the hash of the previous record.
    pub hash: Digest,
}

/// A position in the chain: after record `number`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Link {
    /// Number of the record; 0: before the first one.
    pub number: u64,
    /// Revision of that record.
    pub revision: u64,
    pub hash: Digest,
}

/// A broken place in the chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Break {
    /// Records are missing between two others.
    #[error("after record {after} comes record {found}: the records between them are missing")]
    Gap { after: u64, found: u64 },
    /// The hash does not match.
    #[error("record {0} is not what was written, or the record before it is not")]
    Altered(u64),
    /// Two consecutive records skip a revision.
    #[error(
        "record {number} is of revision {found}, the one before it of {before}: a change has no \
         record"
    )]
    Unrecorded {
        number: u64,
        before: u64,
        found: u64,
    },
    /// The last records are missing.
    #[error(
        "the chain ends at record {last} of revision {recorded}, the state is of revision {state}: \
         the last records are gone"
    )]
    CutOff {
        last: u64,
        recorded: u64,
        state: u64,
    },
}

impl Break {
    /// Returns the number of the first invalid record.
    pub fn record(&self) -> u64 {
        match self {
            Self::Gap { after, .. } => after + 1,
            Self::Altered(number) | Self::Unrecorded { number, .. } => *number,
            Self::CutOff { last, .. } => last + 1,
        }
    }
}

impl Link {
    /// Returns the expected hash of the record that follows this position.
    pub fn expected_hash(&self, record: &AuditRecord) -> Digest {
        let mut hash = Sha256::new();
        hash.update(self.hash.0);
        for number in [
            record.number,
            record.revision,
            record.requests,
            record.changed,
        ] {
            hash.update(number.to_be_bytes());
        }
        hash.update(record.at.unix_ms().to_be_bytes());
        hash.update(record.status.unwrap_or(0).to_be_bytes());
        let texts = [
            Some(record.outcome.as_str()),
            Some(&record.actor),
            Some(&record.subject),
            Some(&record.kind),
            record.address.as_deref(),
            Some(&record.method),
            Some(&record.route),
            Some(&record.object),
            record.entry.as_deref(),
            record.request_id.as_deref(),
            record.trace_id.as_deref(),
        ];
        for text in texts {
            hash_part(&mut hash, text.map(str::as_bytes));
        }
        for digest in [&record.digest_before, &record.digest_after] {
            hash_part(&mut hash, digest.as_ref().map(|it| it.0.as_slice()));
        }
        Digest(hash.finalize().into())
    }

    /// Appends a record after this position.
    pub(crate) fn append(&mut self, mut record: AuditRecord) -> AuditRecord {
        record.number = self.number + 1;
        record.hash = self.expected_hash(&record);
        *self = Self::from_record(&record);
        record
    }

    pub fn from_record(record: &AuditRecord) -> Self {
        Self {
            number: record.number,
            revision: record.revision,
            hash: record.hash,
        }
    }

    /// Advances to the next record.
    ///
    /// # Errors
    /// If the chain is broken there.
    pub fn advance(&mut self, record: &AuditRecord) -> Result<(), Break> {
        if record.number != self.number + 1 {
            return Err(Break::Gap {
                after: self.number,
                found: record.number,
            });
        }
        if record.hash != self.expected_hash(record) {
            return Err(Break::Altered(record.number));
        }
        // The first record of all may have any revision, because a service may be older than its
        // records.
        let is_consecutive =
            record.revision == self.revision || record.revision == self.revision + 1;
        if self.number > 0 && !is_consecutive {
            return Err(Break::Unrecorded {
                number: record.number,
                before: self.revision,
                found: record.revision,
            });
        }
        *self = Self::from_record(record);
        Ok(())
    }

    /// Checks that the chain ends here for a state of this revision.
    ///
    /// # Errors
    /// If changes after the last record have no record.
    pub fn check_end(&self, state_revision: u64) -> Result<(), Break> {
        if self.number == 0 || self.revision == state_revision {
            return Ok(());
        }
        Err(Break::CutOff {
            last: self.number,
            recorded: self.revision,
            state: state_revision,
        })
    }
}

/// Adds one part to a hash. The length is included, so that bytes cannot move from one part to the
/// next. An absent part differs from an empty one.
fn hash_part(hash: &mut Sha256, bytes: Option<&[u8]>) {
    let length = bytes.map_or(u64::MAX, |it| u64::try_from(it.len()).unwrap_or(0));
    hash.update(length.to_be_bytes());
    hash.update(bytes.unwrap_or_default());
}

#[cfg(test)]
mod tests;
