//! An application that is one of two: the end that serves, or one that is served. What comes goes to the one that it is,
//! with its sessions seen through the peer's own `Inner`.

/// Implements [`Application`](super::Application) for an enum of two applications.
macro_rules! either_application {
    (
        impl[$($generics:tt)*] for $peer:ident<$($parameter:ident),*> { $one:ident, $other:ident };
        $address:ty, $message:ty, $datagram:ty, $event:ty
    ) => {
        impl<$($generics)*> $crate::session::Application for $peer<$($parameter),*> {
            type Address = $address;
            type Message = $message;
            type Datagram = $datagram;
            type Event = $event;

            fn accepts(&mut self, now: Time, remote: &Remote<$address>) -> bool {
                match self {
                    $peer::$one(peer) => peer.accepts(now, remote),
                    $peer::$other(peer) => peer.accepts(now, remote),
                }
            }

            fn on_open(
                &mut self,
                now: Time,
                session: SessionId,
                remote: &Remote<$address>,
                sessions: &mut impl Sessions<Self>,
            ) {
                match self {
                    $peer::$one(peer) => peer.on_open(now, session, remote, &mut Inner(sessions)),
                    $peer::$other(peer) => peer.on_open(now, session, remote, &mut Inner(sessions)),
                }
            }

            fn on_message(
                &mut self,
                now: Time,
                session: SessionId,
                message: $message,
                sessions: &mut impl Sessions<Self>,
            ) {
                match self {
                    $peer::$one(peer) => peer.on_message(now, session, message, &mut Inner(sessions)),
                    $peer::$other(peer) => peer.on_message(now, session, message, &mut Inner(sessions)),
                }
            }

            #[inline]
            fn on_datagram(
                &mut self,
                now: Time,
                session: SessionId,
                datagram: $datagram,
                sessions: &mut impl Sessions<Self>,
            ) {
                match self {
                    $peer::$one(peer) => peer.on_datagram(now, session, datagram, &mut Inner(sessions)),
                    $peer::$other(peer) => peer.on_datagram(now, session, datagram, &mut Inner(sessions)),
                }
            }

            fn on_silent(
                &mut self,
                now: Time,
                session: SessionId,
                is_silent: bool,
                sessions: &mut impl Sessions<Self>,
            ) {
                match self {
                    $peer::$one(peer) => peer.on_silent(now, session, is_silent, &mut Inner(sessions)),
                    $peer::$other(peer) => peer.on_silent(now, session, is_silent, &mut Inner(sessions)),
                }
            }

            fn on_closed(
                &mut self,
                now: Time,
                session: SessionId,
                why: Closed,
                sessions: &mut impl Sessions<Self>,
            ) {
                match self {
                    $peer::$one(peer) => peer.on_closed(now, session, why, &mut Inner(sessions)),
                    $peer::$other(peer) => peer.on_closed(now, session, why, &mut Inner(sessions)),
                }
            }

            fn on_timer(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
                match self {
                    $peer::$one(peer) => peer.on_timer(now, &mut Inner(sessions)),
                    $peer::$other(peer) => peer.on_timer(now, &mut Inner(sessions)),
                }
            }

            #[inline]
            fn timer(&self, now: Time) -> Time {
                match self {
                    $peer::$one(peer) => peer.timer(now),
                    $peer::$other(peer) => peer.timer(now),
                }
            }

            #[inline]
            fn next_datagram(&mut self, now: Time) -> Option<(SessionId, $datagram)> {
                match self {
                    $peer::$one(peer) => peer.next_datagram(now),
                    $peer::$other(peer) => peer.next_datagram(now),
                }
            }

            #[inline]
            fn waiting(&self) -> anabranch_control::units::Bytes {
                match self {
                    $peer::$one(peer) => peer.waiting(),
                    $peer::$other(peer) => peer.waiting(),
                }
            }
        }
    };
}

pub(crate) use either_application;
