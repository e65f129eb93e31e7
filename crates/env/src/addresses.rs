//! Limits the connections of each address. Without a limit, one client with half-open connections takes the places of
//! all others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// The connections of all addresses. Clones share them.
#[derive(Clone)]
pub struct Addresses {
    most: usize,
    /// What a connection of an address counts for.
    counts_for: fn(IpAddr) -> IpAddr,
    /// Addresses without a connection are not in the table.
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A connection of an address, counted until this is dropped.
pub struct AddressPermit {
    address: IpAddr,
    addresses: Addresses,
}

impl Addresses {
    /// Limits subscribers: a /64 of IPv6 counts as one address.
    pub fn new(most: usize) -> Self {
        Self { most, counts_for: subscriber, open: Arc::default() }
    }

    /// Limits machines: each address of IPv6 counts on its own. Many machines of one network share a /64.
    pub fn exact(most: usize) -> Self {
        Self { most, counts_for: machine, open: Arc::default() }
    }

    /// `None` when the address has as many connections as it may.
    pub fn enter(&self, peer: IpAddr) -> Option<AddressPermit> {
        let address = (self.counts_for)(peer);
        let mut open = self.open.lock();
        let count = open.entry(address).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(AddressPermit { address, addresses: self.clone() })
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut open = self.addresses.open.lock();
        let count = open.get_mut(&self.address).expect("an address with a connection is in the table");
        *count -= 1;
        if *count == 0 {
            open.remove(&self.address);
        }
    }
}

/// One subscriber has a whole /64 of IPv6, so all of it counts as one address.
fn subscriber(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => (u128::from(address) >> 64 << 64).to_be_bytes().into(),
    }
}

fn machine(peer: IpAddr) -> IpAddr {
    peer.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_its_number_and_leaves_the_rest_to_others() {
        let addresses = Addresses::new(2);
        let [here, there] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let first = addresses.enter(here).unwrap();
        let second = addresses.enter(here).unwrap();
        assert!(addresses.enter(here).is_none());
        assert!(addresses.enter(there).is_some());
        drop(first);
        assert!(addresses.enter(here).is_some());
        drop(second);
        assert!(addresses.open.lock().is_empty(), "what has ended is forgotten");
    }

    #[test]
    fn one_network_of_ipv6_is_one_address() {
        let of = |text: &str| subscriber(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }

    #[test]
    fn machines_of_one_network_leave_each_other_their_numbers() {
        let [first, second] = ["2001:db8::1", "2001:db8::2"].map(|text| text.parse::<IpAddr>().unwrap());
        let (subscribers, machines) = (Addresses::new(1), Addresses::exact(1));
        let _held = (subscribers.enter(first).unwrap(), machines.enter(first).unwrap());
        assert!(subscribers.enter(second).is_none() && machines.enter(first).is_none());
        assert!(machines.enter(second).is_some());
    }
}
