//! A world before its first event, and a connection before its first packet.

use anabranch_control::flow::PeerId;
use anabranch_control::flow::registry::Setup;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_proto::flow::{FlowSender, SenderConfig};
use anabranch_sim::network::{LinkId, NetworkBuilder, TimerId};

use super::super::coordinator::Coordinator;
use super::super::cross::Source;
use super::super::measured::{Delays, FlowMeasured, ReceiverMeasured};
use super::super::shares::Shares;
use super::super::traffic::Application;
use super::{Flow, FlowRunError, Owner, Ways, World};
use anabranch_scenario::flows::{FlowScenario, PacketSpec};

impl<'a, const RECORDED: bool> World<'a, RECORDED> {
    pub(super) fn new(scenario: &'a FlowScenario) -> Result<World<'a, RECORDED>, FlowRunError> {
        let mut builder = NetworkBuilder::new();
        for link in &scenario.links {
            let id = builder.link(link.config());
            if scenario.sample_every.is_some() {
                builder.watch(id);
            }
        }
        let mut route = |path: &[usize]| {
            let links: Vec<LinkId> = path.iter().map(|&link| LinkId(link as u32)).collect();
            builder.route(&links)
        };
        let mut owners = Vec::new();
        let mut timer = |owner: Owner| {
            owners.push(owner);
            TimerId(owners.len() as u32 - 1)
        };
        let mut flows = Vec::new();
        for (i, spec) in (0..).zip(&scenario.flows) {
            let ways =
                spec.receivers.iter().map(|way| Ways { there: route(&way.there), back: route(&way.back) }).collect();
            let application_timer = timer(Owner::Application(i));
            let sender_timer = timer(Owner::Sender(i));
            let receivers = 0..spec.receivers.len() as u32;
            let receiver_timers: Vec<TimerId> = receivers.map(|to| timer(Owner::Receiver(i, PeerId(to)))).collect();
            flows.push(Flow {
                ways,
                sender: None,
                receivers: Vec::new(),
                handshake: None,
                application: Application::new(spec, scenario.seed),
                connection: 0,
                transfer_since: Time::ZERO,
                measured: FlowMeasured {
                    controller: spec.controller.name.into(),
                    goodput_bytes: 0,
                    delivered_bytes: 0,
                    receivers: ReceiverMeasured::of_each(spec.receivers.len()),
                    one_way: Delays::default(),
                    packets_sent: 0,
                    packets_lost: 0,
                    spurious_losses: 0,
                    on_time: Duration::ZERO,
                    share_time: Duration::ZERO,
                    late_bytes: 0,
                    completion: Vec::new(),
                    completion_acked: Vec::new(),
                },
                sender_timer,
                receiver_timer: receiver_timers[0],
                application_timer,
            });
        }
        let mut sources = Vec::new();
        let mut source_timers = Vec::new();
        for (i, cross) in (0..).zip(&scenario.cross_traffic) {
            sources.push(Source::new(cross, route(&cross.path), scenario.seed));
            source_timers.push((timer(Owner::Cross(i)), cross.start));
        }
        let mut network = builder.build(owners.len(), scenario.seed);
        let longest = network.horizon().since(Time::ZERO);
        if scenario.length >= longest {
            return Err(FlowRunError::TooLong { longest });
        }
        for flow in &flows {
            network.set_timer(flow.application_timer, flow.application.wake);
        }
        for (timer, start) in source_timers {
            network.set_timer(timer, start);
        }
        let world = World {
            scenario,
            network,
            flows,
            sources,
            owners,
            packets: scenario.packets,
            counting: false,
            coordinator: scenario.steering.as_ref().map(Coordinator::new),
            shares: Shares::new(scenario.flows.len()),
            error: None,
            recorder: None,
        };
        // Parameters are refused before anything runs.
        for flow in 0..scenario.flows.len() {
            world.new_sender(flow as u32)?;
        }
        Ok(world)
    }

    /// A sender with a new controller.
    pub(super) fn new_sender(&self, flow: u32) -> Result<FlowSender, FlowRunError> {
        let spec = self.spec(flow);
        let PacketSpec { data, ack_policy, paced, ecn, recovery, .. } = self.packets;
        let mut setup = Setup::new(data, self.network.now());
        setup.initial_window = spec.initial_window.unwrap_or(setup.initial_window);
        let controller = (spec.controller.build)(&setup, &spec.parameters).map_err(|error| {
            FlowRunError::Parameter { flow: spec.name.clone(), controller: spec.controller.name, error }
        })?;
        let config = SenderConfig { packet: data, max_ack_delay: ack_policy.max_delay, paced, ecn, recovery };
        let connection = u64::from(self.flows[flow as usize].connection);
        let rng = Rng::indexed(self.scenario.seed, &format!("controller/{}", spec.name), connection);
        Ok(FlowSender::new(config, controller, spec.receivers.len(), rng))
    }
}
