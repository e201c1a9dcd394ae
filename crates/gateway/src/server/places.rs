//! What clients share, each network a fair part of it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bits of an address of IPv6 that tell customers apart: what a provider gives one (RFC 6177), as where viewers of streams
/// are counted.
const CUSTOMER: u32 = 56;

/// Whom a connection comes from, as far as clients are told apart: an address of IPv4, or a /56 of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client(IpAddr);

impl Client {
    pub fn of(address: IpAddr) -> Client {
        Client(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - CUSTOMER))))
            }
            address => address,
        })
    }
}

/// How many places each client has.
#[derive(Clone, Debug)]
pub struct Places {
    most: usize,
    taken: Arc<Mutex<HashMap<Client, usize>>>,
}

impl Places {
    /// Of which each has `most`.
    pub fn of_each(most: usize) -> Places {
        Places { most, taken: Arc::default() }
    }

    /// One more for `client`, if it has not all that it may have.
    pub fn take(&self, client: Client) -> Option<Place> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(client).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Place { places: self.clone(), client })
    }

    /// The same, but no bound holds for this machine: whoever is here may have all, and a proxy on it speaks for many.
    pub fn take_from_afar(&self, client: Client) -> Option<Option<Place>> {
        if client.0.is_loopback() { Some(None) } else { self.take(client).map(Some) }
    }
}

/// A place; it is free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    client: Client,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.client);
            }
        }
    }
}

/// So many places in all, and of them so many for each client from afar.
#[derive(Clone, Debug)]
pub struct Seats {
    all: Arc<Semaphore>,
    each: Places,
}

/// One of them; it is free again when this is dropped.
#[derive(Debug)]
pub struct Seat {
    _permit: OwnedSemaphorePermit,
    _place: Option<Place>,
}

impl Seats {
    pub fn new(most: usize, most_of_each: usize) -> Seats {
        Seats { all: Arc::new(Semaphore::new(most)), each: Places::of_each(most_of_each) }
    }

    pub fn take(&self, client: Client) -> Option<Seat> {
        let place = self.each.take_from_afar(client)?;
        Some(Seat { _permit: Arc::clone(&self.all).try_acquire_owned().ok()?, _place: place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: &str) -> Client {
        Client::of(address.parse().unwrap())
    }

    #[test]
    fn a_customer_of_ipv6_is_one_client_and_an_address_of_ipv4_is_one() {
        assert_eq!(client("2001:db8:0:1::1"), client("2001:db8:0:ff:5::9"));
        assert_ne!(client("2001:db8:0:1::1"), client("2001:db8:0:100::1"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
    }

    #[test]
    fn nobody_from_afar_has_more_than_its_part_and_this_machine_has_all() {
        let seats = Seats::new(5, 2);
        let far: Vec<Seat> = (0..4).filter_map(|_| seats.take(client("192.0.2.1"))).collect();
        assert_eq!(far.len(), 2);
        let here: Vec<Seat> = (0..9).filter_map(|_| seats.take(client("127.0.0.1"))).collect();
        assert_eq!(here.len(), 3);
        assert!(seats.take(client("192.0.2.2")).is_none(), "all are taken");
        drop(far);
        let others: Vec<Seat> = (0..4).filter_map(|_| seats.take(client("192.0.2.2"))).collect();
        assert_eq!(others.len(), 2);
        assert!(seats.take(client("::1")).is_none());
    }
}
