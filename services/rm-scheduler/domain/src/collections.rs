//! Collections of indices of nodes, work and other rows: sets, lists and buckets by quanta.

pub(crate) mod bit_set;
pub(crate) mod id_list;
pub(crate) mod quanta_buckets;
