//! What walks over many shares read of each, side by side: most of a share is read only when
//! something is said of it.

use super::Register;
use crate::room::Room;

const NONE: u32 = u32::MAX;

pub(crate) struct Load {
    pub order: u64,
    machine: u32,
    /// Number of its user.
    pub user_at: u32,
    /// Number of the user whose work it is.
    owner_at: u32,
    /// The shape of its work, where it is a fair share of just that size, without gpus and without
    /// a service: then nothing else decides what it takes of its node.
    shape: u32,
    pub leaving: bool,
    pub fixed: bool,
}

fn small(number: Option<usize>) -> u32 {
    let number = number.map(u32::try_from);
    number.map_or(NONE, |number| number.unwrap_or(NONE - 1))
}

fn large(number: u32) -> Option<usize> {
    usize::try_from(number).ok().filter(|_| number != NONE)
}

impl Load {
    pub fn machine(&self) -> Option<usize> {
        large(self.machine)
    }

    pub fn shape(&self) -> Option<usize> {
        large(self.shape)
    }

    pub fn owner_at(&self) -> Option<u32> {
        (self.owner_at != NONE).then_some(self.owner_at)
    }
}

impl Register {
    /// Takes what a share holds from room of its node.
    pub fn take_from(&self, room: &mut Room, held: usize) {
        let load = &self.loads[held];
        if let Some(shape) = load.shape() {
            room.take(load.order, &self.shapes[shape].3, &[]);
        } else {
            let share = &self.shares[held];
            room.take(share.order, &share.size, &share.gpus);
        }
    }

    /// Brings the load of a share up to the share and to its work.
    pub(super) fn reload(&mut self, at: usize) {
        let share = &self.shares[at];
        let owner = share.request.map(|request| &self.requests[request]);
        let is_plain = |owner: &&super::Asked| {
            !share.fixed
                && owner.class.is_some()
                && owner.wishes().service.is_none()
                && share.gpus.is_empty()
                && share.size == self.shapes[owner.shape].3
        };
        let load = Load {
            order: share.order,
            machine: small(share.machine),
            user_at: small(Some(share.user_at)),
            owner_at: small(owner.map(|owner| owner.user_at)),
            shape: small(owner.filter(is_plain).map(|owner| owner.shape)),
            leaving: share.leaving,
            fixed: share.fixed,
        };
        match self.loads.get_mut(at) {
            Some(place) => *place = load,
            None => self.loads.push(load),
        }
    }
}
