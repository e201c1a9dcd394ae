//! Amounts of data and rates, kept apart by their types.
//!
//! `Rate * Duration` is `Bytes`, `Bytes / Duration` is `Rate`, `Bytes / Rate` is
//! `Duration`; nothing else mixes. `Packets` become bytes by the size of one. Equations, which
//! round nothing, count in `Packets`, `Octets` and `Mbits`, in `PacketRate`, `OctetRate` and
//! `MbitRate`, and spans in `Seconds`.

mod rates;

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Mul, Neg, Sub, SubAssign};
use core::str::FromStr;

use serde::Deserialize;

pub use self::rates::{MbitRate, Mbits, OctetRate, PacketRate, SinglePacketRate};
use crate::time::Duration;

const NANOS_PER_SEC: u128 = 1_000_000_000;
const BITS_PER_BYTE: u128 = 8;

/// An amount of data in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

/// A data rate in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

/// A number of full packets, whole or not: what many algorithms count windows in.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Deserialize)]
#[serde(transparent)]
#[repr(transparent)]
pub struct Packets(pub f64);

/// A number of bytes, whole or not: what the others count windows in.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct Octets(pub f64);

impl Bytes {
    /// Nothing.
    pub const ZERO: Bytes = Bytes(0);

    /// `bytes` bytes.
    pub const fn new(bytes: u64) -> Bytes {
        Bytes(bytes)
    }

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Rate {
    /// Nothing, ever.
    pub const ZERO: Rate = Rate(0);
    /// The lowest at which anything ever leaves.
    pub const LOWEST: Rate = Rate(1);

    /// `bits` bits each second.
    pub const fn from_bits_per_sec(bits: u64) -> Rate {
        Rate(bits)
    }

    /// `bytes` bytes each second.
    pub const fn from_bytes_per_sec(bytes: u64) -> Rate {
        Rate(bytes.saturating_mul(8))
    }

    /// `bytes` bytes each second; negative or not a number is zero.
    pub fn from_bytes_per_sec_f64(bytes: f64) -> Rate {
        Rate((bytes * 8.0) as u64)
    }

    /// Bits a second.
    pub const fn bits_per_sec(self) -> u64 {
        self.0
    }

    /// Bytes a second.
    pub fn bytes_per_sec(self) -> f64 {
        self.0 as f64 / 8.0
    }
}

impl Packets {
    /// As many as `bytes` are, with `packet` each.
    #[inline]
    pub fn of(bytes: Octets, packet: Octets) -> Packets {
        Packets(bytes.0 / packet.0)
    }

    /// In bytes, with `packet` each.
    #[inline]
    pub fn in_bytes(self, packet: Octets) -> Octets {
        Octets(self.0 * packet.0)
    }

    /// Without its fraction.
    #[inline]
    pub fn floor(self) -> Packets {
        Packets(libm::floor(self.0))
    }
}

impl Octets {
    /// Without its fraction; negative is nothing.
    #[inline]
    pub fn whole(self) -> Bytes {
        Bytes(self.0 as u64)
    }
}

/// In what a window may be counted: [`Packets`] or [`Octets`]. RFC 5681 counts bytes, RFC 9438
/// packets; to count one in the other's unit would round differently.
pub trait WindowUnit:
    Copy
    + fmt::Debug
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + SubAssign
    + Mul<f64, Output = Self>
    + Div<f64, Output = Self>
    + Div<Self, Output = f64>
    + 'static
{
    /// Nothing.
    const ZERO: Self;
    /// One of the unit.
    const ONE: Self;
    /// More than any window.
    const INFINITY: Self;

    /// What `bytes` are, where a full packet has `packet`.
    fn of(bytes: Octets, packet: Octets) -> Self;

    /// In bytes, where a full packet has `packet`.
    fn in_bytes(self, packet: Octets) -> Octets;

    /// What `packets` are, where a full one has `packet`.
    fn of_packets(packets: Packets, packet: Octets) -> Self;

    /// `self * counted / window`, in this order: what a rule adds for `counted` of a window.
    fn share(self, counted: Self, window: Self) -> Self;

    /// The larger amount.
    fn max(self, other: Self) -> Self;

    /// The smaller amount.
    fn min(self, other: Self) -> Self;
}

macro_rules! window_unit {
    ($unit:ident, $of_bytes:expr, $bytes:expr, $of_packets:expr) => {
        impl $unit {
            /// The larger number.
            #[inline]
            pub fn max(self, other: $unit) -> $unit {
                $unit(self.0.max(other.0))
            }

            /// The smaller number.
            #[inline]
            pub fn min(self, other: $unit) -> $unit {
                $unit(self.0.min(other.0))
            }

            /// The nearest number from `least` to `most`.
            #[inline]
            pub fn clamp(self, least: $unit, most: $unit) -> $unit {
                $unit(self.0.clamp(least.0, most.0))
            }

            /// Whether it is a number and not infinite.
            #[inline]
            pub fn is_finite(self) -> bool {
                self.0.is_finite()
            }
        }

        impl WindowUnit for $unit {
            const ZERO: $unit = $unit(0.0);
            const ONE: $unit = $unit(1.0);
            const INFINITY: $unit = $unit(f64::INFINITY);

            #[inline]
            fn of(bytes: Octets, packet: Octets) -> $unit {
                $unit($of_bytes(bytes.0, packet.0))
            }

            #[inline]
            fn in_bytes(self, packet: Octets) -> Octets {
                Octets($bytes(self.0, packet.0))
            }

            #[inline]
            fn of_packets(packets: Packets, packet: Octets) -> $unit {
                $unit($of_packets(packets.0, packet.0))
            }

            #[inline]
            fn share(self, counted: $unit, window: $unit) -> $unit {
                $unit(self.0 * counted.0 / window.0)
            }

            #[inline]
            fn max(self, other: $unit) -> $unit {
                $unit::max(self, other)
            }

            #[inline]
            fn min(self, other: $unit) -> $unit {
                $unit::min(self, other)
            }
        }

        impl Add for $unit {
            type Output = $unit;
            #[inline]
            fn add(self, other: $unit) -> $unit {
                $unit(self.0 + other.0)
            }
        }

        impl Sub for $unit {
            type Output = $unit;
            #[inline]
            fn sub(self, other: $unit) -> $unit {
                $unit(self.0 - other.0)
            }
        }

        impl SubAssign for $unit {
            #[inline]
            fn sub_assign(&mut self, other: $unit) {
                *self = *self - other;
            }
        }

        impl AddAssign for $unit {
            #[inline]
            fn add_assign(&mut self, other: $unit) {
                *self = *self + other;
            }
        }

        impl Neg for $unit {
            type Output = $unit;
            #[inline]
            fn neg(self) -> $unit {
                $unit(-self.0)
            }
        }

        impl Mul<f64> for $unit {
            type Output = $unit;
            #[inline]
            fn mul(self, factor: f64) -> $unit {
                $unit(self.0 * factor)
            }
        }

        impl Div<f64> for $unit {
            type Output = $unit;
            #[inline]
            fn div(self, divisor: f64) -> $unit {
                $unit(self.0 / divisor)
            }
        }

        impl Div for $unit {
            type Output = f64;
            #[inline]
            fn div(self, other: $unit) -> f64 {
                self.0 / other.0
            }
        }
    };
}

window_unit!(Packets, |bytes: f64, packet: f64| bytes / packet, |n: f64, packet: f64| n * packet, |n: f64, _| n);
window_unit!(Octets, |bytes: f64, _| bytes, |n: f64, _| n, |n: f64, packet: f64| n * packet);

impl From<Bytes> for Octets {
    #[inline]
    fn from(bytes: Bytes) -> Octets {
        Octets(bytes.get() as f64)
    }
}

impl Mul<Duration> for Rate {
    type Output = Bytes;
    /// The whole bytes that pass in `span`.
    #[inline]
    fn mul(self, span: Duration) -> Bytes {
        // Below 18 Gbit in a second 64 bits hold the product, and divide much faster.
        if let Some(product) = self.0.checked_mul(span.as_nanos()) {
            return Bytes(product / (BITS_PER_BYTE * NANOS_PER_SEC) as u64);
        }
        let bytes = u128::from(self.0) * u128::from(span.as_nanos()) / (BITS_PER_BYTE * NANOS_PER_SEC);
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl Div<Duration> for Bytes {
    type Output = Rate;
    /// The rate at which these bytes pass in `span`; the highest rate for no span.
    #[inline]
    fn div(self, span: Duration) -> Rate {
        // Below 2 GB 64 bits hold the product, and divide much faster.
        if let Some(product) = self.0.checked_mul((BITS_PER_BYTE * NANOS_PER_SEC) as u64)
            && span.as_nanos() > 0
        {
            return Rate(product / span.as_nanos());
        }
        match u128::from(span.as_nanos()) {
            0 => Rate(u64::MAX),
            nanos => {
                Rate(u64::try_from(u128::from(self.0) * BITS_PER_BYTE * NANOS_PER_SEC / nanos).unwrap_or(u64::MAX))
            }
        }
    }
}

impl Div<Rate> for Bytes {
    type Output = Duration;
    /// How long these bytes take at `rate`, rounded up; the longest span for no rate.
    #[inline]
    fn div(self, rate: Rate) -> Duration {
        if let Some(product) = self.0.checked_mul((BITS_PER_BYTE * NANOS_PER_SEC) as u64)
            && rate.0 > 0
        {
            return Duration::from_nanos(product.div_ceil(rate.0));
        }
        match u128::from(rate.0) {
            0 => Duration::from_nanos(u64::MAX),
            bits => {
                let nanos = (u128::from(self.0) * BITS_PER_BYTE * NANOS_PER_SEC).div_ceil(bits);
                Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
        }
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    /// Saturates at zero.
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Bytes) {
        *self = *self - other;
    }
}

impl Mul<u64> for Bytes {
    type Output = Bytes;
    fn mul(self, factor: u64) -> Bytes {
        Bytes(self.0.saturating_mul(factor))
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(amounts: I) -> Bytes {
        amounts.fold(Bytes::ZERO, Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.0)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B/s", self.bytes_per_sec())
    }
}

/// Units in which a rate may be written, with their bits a second.
const RATE_UNITS: [(&str, f64); 8] = [
    ("B/s", 8.0),
    ("kB/s", 8e3),
    ("MB/s", 8e6),
    ("GB/s", 8e9),
    ("bit/s", 1.0),
    ("kbit/s", 1e3),
    ("Mbit/s", 1e6),
    ("Gbit/s", 1e9),
];

impl FromStr for Rate {
    type Err = String;

    /// Reads a number and a unit, as in `400000 B/s` or `2.5 Mbit/s` (decimal prefixes).
    fn from_str(text: &str) -> Result<Rate, String> {
        let expected = || {
            let units: Vec<&str> = RATE_UNITS.iter().map(|(unit, _)| *unit).collect();
            format!("expected a number and a unit such as \"400000 B/s\" (units: {})", units.join(", "))
        };
        let text = text.trim();
        let split = text.find(|c: char| c.is_ascii_alphabetic() && c != 'e').ok_or_else(expected)?;
        let (number, unit) = text.split_at(split);
        let bits = RATE_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, bits)| *bits).ok_or_else(expected)?;
        let number: f64 = number.trim().parse().map_err(|_| expected())?;
        if !number.is_finite() || number < 0.0 || number * bits > u64::MAX as f64 {
            return Err(format!("a rate is between 0 and {} bit/s", u64::MAX));
        }
        // 2.001 Mbit/s are not 2 000 999 bit/s because 2.001 has no exact binary form.
        Ok(Rate((number * bits).round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_times_a_span_over_that_span_is_the_rate_again() {
        let rate = Rate::from_bytes_per_sec(400_000);
        assert_eq!(rate * Duration::SECOND, Bytes::new(400_000));
        assert_eq!(Bytes::new(400_000) / Duration::SECOND, rate);
        assert_eq!(Bytes::new(400_000) / rate, Duration::SECOND);
    }

    #[test]
    fn packets_are_parts_of_packets_too_and_bytes_by_the_size_of_one() {
        let packet = Octets(1500.0);
        let window = Packets::of(Octets(3750.0), packet);
        assert_eq!(window, Packets(2.5));
        assert_eq!((window.in_bytes(packet), window.in_bytes(Octets(100.0))), (Octets(3750.0), Octets(250.0)));
        assert_eq!((window * 0.999).in_bytes(packet).whole(), Bytes::new(3746));
        assert_eq!(Octets(-0.5).whole(), Bytes::ZERO);
        assert_eq!((window * 3.0 - Packets(10.0)).max(-window / 2.0), Packets(-1.25));
    }

    #[test]
    fn division_by_nothing_saturates() {
        assert_eq!(Bytes::new(1) / Rate::ZERO, Duration::from_nanos(u64::MAX));
        assert_eq!(Bytes::new(1) / Duration::ZERO, Rate::from_bits_per_sec(u64::MAX));
    }

    #[test]
    fn a_rate_reads_every_unit_and_refuses_what_it_cannot_hold() {
        assert_eq!("400000 B/s".parse(), Ok(Rate::from_bytes_per_sec(400_000)));
        assert_eq!("4 MB/s".parse(), Ok(Rate::from_bytes_per_sec(4_000_000)));
        assert_eq!("2.5Mbit/s".parse(), Ok(Rate::from_bits_per_sec(2_500_000)));
        assert_eq!("2.001 Mbit/s".parse(), Ok(Rate::from_bits_per_sec(2_001_000)));
        assert_eq!("1e3 kbit/s".parse(), Ok(Rate::from_bits_per_sec(1_000_000)));
        for wrong in ["", "12", "fast", "-1 B/s", "1 MB", "nan B/s", "1e30 GB/s"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong:?} was read as a rate");
        }
    }
}
