//! Rates of equations: bytes, packets or megabits a second, whole or not.
//!
//! Over [`Seconds`] each is an amount of its own, and no other: [`OctetRate`] of [`Octets`], [`PacketRate`] of
//! [`Packets`], [`MbitRate`] of [`Mbits`].

use core::ops::{Add, Div, Mul, Sub};

use serde::Deserialize;

use super::{Octets, Packets, Rate};
use crate::time::Seconds;

/// A rate in bytes a second, whole or not: in what models of a path are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct OctetRate(pub f64);

/// A rate in full packets a second, whole or not: in what rules are counted that know one size of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct PacketRate(pub f64);

/// A [`PacketRate`] in single precision: a sender keeps several for each relay that it knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct SinglePacketRate(f32);

impl SinglePacketRate {
    /// Nothing, ever.
    pub const ZERO: SinglePacketRate = SinglePacketRate(0.0);
}

impl From<PacketRate> for SinglePacketRate {
    /// The nearest.
    #[inline]
    fn from(rate: PacketRate) -> SinglePacketRate {
        SinglePacketRate(rate.0 as f32)
    }
}

impl From<SinglePacketRate> for PacketRate {
    #[inline]
    fn from(rate: SinglePacketRate) -> PacketRate {
        PacketRate(rate.0.into())
    }
}

/// A rate in Mbit/s, whole or not: in what utilities are counted, whose powers make the unit part of their constants.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Deserialize)]
#[serde(transparent)]
#[repr(transparent)]
pub struct MbitRate(pub f64);

/// A number of megabits, whole or not: what passes in a second at that number of Mbit/s.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct Mbits(pub f64);

macro_rules! rate {
    ($rate:ident, $amount:ident) => {
        impl $rate {
            /// Nothing, ever.
            pub const ZERO: $rate = $rate(0.0);
            /// More than any rate.
            pub const INFINITY: $rate = $rate(f64::INFINITY);

            /// The higher rate.
            #[inline]
            pub fn max(self, other: $rate) -> $rate {
                $rate(self.0.max(other.0))
            }

            /// The lower rate.
            #[inline]
            pub fn min(self, other: $rate) -> $rate {
                $rate(self.0.min(other.0))
            }

            /// The nearest rate from `least` to `most`.
            #[inline]
            pub fn clamp(self, least: $rate, most: $rate) -> $rate {
                $rate(self.0.clamp(least.0, most.0))
            }

            /// Whether it is a number and not infinite.
            #[inline]
            pub fn is_finite(self) -> bool {
                self.0.is_finite()
            }
        }

        impl Add for $rate {
            type Output = $rate;
            #[inline]
            fn add(self, other: $rate) -> $rate {
                $rate(self.0 + other.0)
            }
        }

        impl Sub for $rate {
            type Output = $rate;
            #[inline]
            fn sub(self, other: $rate) -> $rate {
                $rate(self.0 - other.0)
            }
        }

        impl Mul<f64> for $rate {
            type Output = $rate;
            #[inline]
            fn mul(self, factor: f64) -> $rate {
                $rate(self.0 * factor)
            }
        }

        impl Div<f64> for $rate {
            type Output = $rate;
            #[inline]
            fn div(self, divisor: f64) -> $rate {
                $rate(self.0 / divisor)
            }
        }

        impl Div for $rate {
            type Output = f64;
            /// How many times `other` it is.
            #[inline]
            fn div(self, other: $rate) -> f64 {
                self.0 / other.0
            }
        }

        impl Mul<Seconds> for $rate {
            type Output = $amount;
            /// What passes in `span`.
            #[inline]
            fn mul(self, span: Seconds) -> $amount {
                $amount(self.0 * span.0)
            }
        }

        impl Div<Seconds> for $amount {
            type Output = $rate;
            /// The rate at which this much passes in `span`; infinite or no number for no span.
            #[inline]
            fn div(self, span: Seconds) -> $rate {
                $rate(self.0 / span.0)
            }
        }

        impl Div<$rate> for $amount {
            type Output = Seconds;
            /// How long this much takes at `rate`; infinite or no number for no rate.
            #[inline]
            fn div(self, rate: $rate) -> Seconds {
                Seconds(self.0 / rate.0)
            }
        }
    };
}

rate!(OctetRate, Octets);
rate!(PacketRate, Packets);
rate!(MbitRate, Mbits);

impl OctetRate {
    /// In whole bits a second; negative or not a number is zero.
    #[inline]
    pub fn whole(self) -> Rate {
        Rate::from_bytes_per_sec_f64(self.0)
    }

    /// In bits a second, whole or not.
    #[inline]
    pub fn bits_per_sec(self) -> f64 {
        self.0 * 8.0
    }
}

impl PacketRate {
    /// As many packets of `packet` each as `bytes` a second are.
    #[inline]
    pub fn of(bytes: OctetRate, packet: Octets) -> PacketRate {
        PacketRate(bytes.0 / packet.0)
    }

    /// In bytes a second, with `packet` each.
    #[inline]
    pub fn in_bytes(self, packet: Octets) -> OctetRate {
        OctetRate(self.0 * packet.0)
    }
}

impl MbitRate {
    /// In whole bits a second; negative or not a number is zero.
    #[inline]
    pub fn whole(self) -> Rate {
        Rate::from_bits_per_sec(self.bits_per_sec() as u64)
    }

    /// In bits a second, whole or not.
    #[inline]
    pub fn bits_per_sec(self) -> f64 {
        self.0 * 1e6
    }
}

impl Mbits {
    /// What `packets` of `packet` each are.
    #[inline]
    pub fn of(packets: Packets, packet: Octets) -> Mbits {
        Mbits(packets.0 * (packet.0 * 8.0 / 1e6))
    }
}

impl From<Rate> for OctetRate {
    #[inline]
    fn from(rate: Rate) -> OctetRate {
        OctetRate(rate.bytes_per_sec())
    }
}

impl From<MbitRate> for OctetRate {
    #[inline]
    fn from(rate: MbitRate) -> OctetRate {
        OctetRate(rate.bits_per_sec() / 8.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    #[test]
    fn a_rate_times_a_span_over_that_span_is_the_rate_again() {
        let (window, span) = (Octets(1500.5), Duration::from_millis(250).seconds());
        let rate = window / span;
        assert_eq!((rate, rate * span), (OctetRate(6002.0), window));
        assert_eq!((rate * 0.5 + rate / 2.0).bits_per_sec(), 48_016.0);
        assert_eq!(((rate - rate / 2.0) / rate, window / rate), (0.5, span));
    }

    #[test]
    fn whole_bits_a_second_are_what_a_sender_is_limited_to() {
        let rate = Rate::from_bits_per_sec(1_000_001);
        assert_eq!(OctetRate::from(rate), OctetRate(125_000.125));
        assert_eq!(OctetRate::from(rate).whole(), rate);
        assert_eq!(OctetRate(0.99).whole(), Rate::from_bits_per_sec(7));
        assert_eq!(OctetRate(f64::NAN).whole(), Rate::ZERO);
        assert_eq!(MbitRate(1.5).whole(), Rate::from_bits_per_sec(1_500_000));
        assert_eq!((MbitRate(-1.0).whole(), MbitRate(f64::NAN).whole()), (Rate::ZERO, Rate::ZERO));
        assert!(!OctetRate::INFINITY.is_finite());
    }

    #[test]
    fn packets_and_megabits_a_second_are_bytes_by_the_size_of_a_packet() {
        let packet = Octets(1500.0);
        let rate = PacketRate::of(OctetRate(3750.0), packet);
        assert_eq!((rate, rate.in_bytes(packet)), (PacketRate(2.5), OctetRate(3750.0)));
        assert_eq!(rate.clamp(PacketRate(1.0), PacketRate(2.0)), PacketRate(2.0));
        // A packet of 1250 bytes is 10 000 bits.
        let data = Mbits::of(Packets(250.0), Octets(1250.0));
        assert_eq!((data, data / Seconds(0.5)), (Mbits(2.5), MbitRate(5.0)));
        assert_eq!(OctetRate::from(MbitRate(5.0)), OctetRate(625_000.0));
    }
}
