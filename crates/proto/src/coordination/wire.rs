//! Terms, reports and directives as bytes. Integers are big-endian, times nanoseconds, rates bits a second.
//!
//! ```text
//! message   terms      tag 1, epoch 8, every 8
//! datagrams host       tag 1, number 8, at 8, period 8, flows 4, sent 8, lost 8, min_rtt 8, rtt 8, limit 8
//!           link       tag 2, number 8, at 8, period 8, capacity 8, sent 8, queued 8, dropped 8
//!           directive  tag 3, epoch 8, number 8, rate 8, minimum 8, actuator 1, lifetime 8
//! ```
//!
//! What is not known is 2^64 - 1.

use anabranch_control::time::Duration;
use anabranch_control::units::{Bytes, Rate};

use super::message::{Actuator, Datagram, Directive, HostSeen, LinkSeen, Report, Seen, Terms};
use crate::codec::{CodecError, Reader, Writer};
use crate::session::WireLength;

/// Bytes of terms.
pub const TERMS: usize = 17;

/// Bytes of a host's report, the longest datagram.
pub const HOST_REPORT: usize = 69;

/// Bytes of a link's report.
pub const LINK_REPORT: usize = 57;

/// Bytes of a directive.
pub const DIRECTIVE: usize = 42;

/// What is not known.
const UNKNOWN: u64 = u64::MAX;

/// Bytes of `datagram`.
pub fn length(datagram: &Datagram) -> usize {
    match datagram {
        Datagram::Report(Report { seen: Seen::Host(_), .. }) => HOST_REPORT,
        Datagram::Report(Report { seen: Seen::Link(_), .. }) => LINK_REPORT,
        Datagram::Directive(_) => DIRECTIVE,
    }
}

/// Appends the bytes of `terms`.
pub fn write_message(terms: &Terms, out: &mut Vec<u8>) {
    let writer = &mut Writer::new(out);
    writer.u8(1);
    writer.u64(terms.epoch);
    writer.u64(terms.every.as_nanos());
}

/// The terms that `bytes` are.
///
/// # Errors
///
/// When no coordinator sends them.
pub fn read_message(bytes: &[u8]) -> Result<Terms, CodecError> {
    let mut reader = Reader::new(bytes);
    if reader.u8()? != 1 {
        return Err(CodecError::Value("message"));
    }
    let terms = Terms { epoch: reader.u64()?, every: Duration::from_nanos(reader.u64()?) };
    if terms.every == Duration::ZERO {
        return Err(CodecError::Value("every"));
    }
    reader.end()?;
    Ok(terms)
}

/// Appends the bytes of `datagram`.
pub fn write_datagram(datagram: &Datagram, out: &mut Vec<u8>) {
    let writer = &mut Writer::new(out);
    if let Datagram::Report(Report { number, at, period, seen }) = *datagram {
        writer.u8(if matches!(seen, Seen::Host(_)) { 1 } else { 2 });
        writer.u64(number);
        writer.u64(at.as_nanos());
        writer.u64(period.as_nanos());
    }
    match *datagram {
        Datagram::Report(Report { seen: Seen::Host(host), .. }) => {
            writer.u32(host.flows);
            writer.u64(host.sent.get());
            writer.u64(host.lost.get());
            writer.u64(host.min_rtt.map_or(UNKNOWN, Duration::as_nanos));
            writer.u64(host.rtt.map_or(UNKNOWN, Duration::as_nanos));
            writer.u64(host.limit.map_or(UNKNOWN, Rate::bits_per_sec));
        }
        Datagram::Report(Report { seen: Seen::Link(link), .. }) => {
            writer.u64(link.capacity.map_or(UNKNOWN, Rate::bits_per_sec));
            writer.u64(link.sent.get());
            writer.u64(link.queued.map_or(UNKNOWN, Bytes::get));
            writer.u64(link.dropped);
        }
        Datagram::Directive(directive) => {
            writer.u8(3);
            writer.u64(directive.epoch);
            writer.u64(directive.number);
            writer.u64(directive.rate.bits_per_sec());
            writer.u64(directive.minimum.bits_per_sec());
            writer.u8(match directive.actuator {
                Actuator::Maximum => 0,
                Actuator::Fixed => 1,
                Actuator::Rate => 2,
            });
            writer.u64(directive.lifetime.as_nanos());
        }
    }
}

/// The datagram that `bytes` are.
///
/// # Errors
///
/// When neither an agent nor a coordinator sends them.
pub fn read_datagram(bytes: &[u8]) -> Result<Datagram, CodecError> {
    let mut reader = Reader::new(bytes);
    let known = |value: u64| Some(value).filter(|value| *value != UNKNOWN);
    let datagram = match reader.u8()? {
        tag @ (1 | 2) => {
            let number = reader.u64()?;
            let (at, period) = (Duration::from_nanos(reader.u64()?), Duration::from_nanos(reader.u64()?));
            let seen = if tag == 1 {
                Seen::Host(HostSeen {
                    flows: reader.u32()?,
                    sent: Bytes::new(reader.u64()?),
                    lost: Bytes::new(reader.u64()?),
                    min_rtt: known(reader.u64()?).map(Duration::from_nanos),
                    rtt: known(reader.u64()?).map(Duration::from_nanos),
                    limit: known(reader.u64()?).map(Rate::from_bits_per_sec),
                })
            } else {
                Seen::Link(LinkSeen {
                    capacity: known(reader.u64()?).map(Rate::from_bits_per_sec),
                    sent: Bytes::new(reader.u64()?),
                    queued: known(reader.u64()?).map(Bytes::new),
                    dropped: reader.u64()?,
                })
            };
            Datagram::Report(Report { number, at, period, seen })
        }
        3 => Datagram::Directive(Directive {
            epoch: reader.u64()?,
            number: reader.u64()?,
            rate: Rate::from_bits_per_sec(reader.u64()?),
            minimum: Rate::from_bits_per_sec(reader.u64()?),
            actuator: match reader.u8()? {
                0 => Actuator::Maximum,
                1 => Actuator::Fixed,
                2 => Actuator::Rate,
                _ => return Err(CodecError::Value("actuator")),
            },
            lifetime: Duration::from_nanos(reader.u64()?),
        }),
        _ => return Err(CodecError::Value("datagram")),
    };
    reader.end()?;
    Ok(datagram)
}

impl WireLength for Terms {
    fn wire_length(&self) -> usize {
        TERMS
    }
}

impl WireLength for Datagram {
    fn wire_length(&self) -> usize {
        length(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::session::WireLength;

    fn datagrams() -> impl Strategy<Value = Datagram> {
        let number = || any::<u64>();
        let span = || any::<u64>().prop_map(Duration::from_nanos);
        let maybe = || prop::option::of(0..u64::MAX);
        let host = (any::<u32>(), number(), number(), maybe(), maybe(), maybe()).prop_map(
            |(flows, sent, lost, min_rtt, rtt, limit)| {
                Seen::Host(HostSeen {
                    flows,
                    sent: Bytes::new(sent),
                    lost: Bytes::new(lost),
                    min_rtt: min_rtt.map(Duration::from_nanos),
                    rtt: rtt.map(Duration::from_nanos),
                    limit: limit.map(Rate::from_bits_per_sec),
                })
            },
        );
        let link = (maybe(), number(), maybe(), number()).prop_map(|(capacity, sent, queued, dropped)| {
            let capacity = capacity.map(Rate::from_bits_per_sec);
            Seen::Link(LinkSeen { capacity, sent: Bytes::new(sent), queued: queued.map(Bytes::new), dropped })
        });
        let report = (number(), span(), span(), prop_oneof![host, link])
            .prop_map(|(number, at, period, seen)| Datagram::Report(Report { number, at, period, seen }));
        let actuator = prop_oneof![Just(Actuator::Maximum), Just(Actuator::Fixed), Just(Actuator::Rate)];
        let directive = (number(), number(), number(), number(), actuator, span()).prop_map(
            |(epoch, number, rate, minimum, actuator, lifetime)| {
                let (rate, minimum) = (Rate::from_bits_per_sec(rate), Rate::from_bits_per_sec(minimum));
                Datagram::Directive(Directive { epoch, number, rate, minimum, actuator, lifetime })
            },
        );
        prop_oneof![report, directive]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_as_long_as_it_says(datagram in datagrams()) {
            let mut bytes = Vec::new();
            write_datagram(&datagram, &mut bytes);
            prop_assert_eq!(bytes.len(), datagram.wire_length());
            prop_assert_eq!(read_datagram(&bytes), Ok(datagram));
            prop_assert!(read_datagram(&bytes[..bytes.len() - 1]).is_err());
            bytes.push(0);
            prop_assert_eq!(read_datagram(&bytes), Err(CodecError::Trailing));
        }

        #[test]
        fn terms_are_read_as_they_were_written(epoch: u64, every in 1u64..) {
            let terms = Terms { epoch, every: Duration::from_nanos(every) };
            let mut bytes = Vec::new();
            write_message(&terms, &mut bytes);
            prop_assert_eq!(bytes.len(), terms.wire_length());
            prop_assert_eq!(read_message(&bytes), Ok(terms));
        }

        #[test]
        fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = (read_datagram(&bytes), read_message(&bytes));
        }
    }
}
