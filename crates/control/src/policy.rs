//! A policy: a network of fully connected layers that says rates from an observation, with or without memory.
//!
//! ```text
//! x_0 = (clamp(observation, least, most) - mean) / deviation, cut at ±CUT
//! x_l = tanh(x_(l-1) W_l + b_l)          in each layer but the last
//! rates = x_(n-1) W_n + b_n               in the last
//! ```
//!
//! With memory, a gated recurrent unit (Cho et al. 2014, arXiv 1406.1078; in the form that cuDNN has, where `r` gates what the
//! state says) stands before the first layer, and `h` is kept from one observation to the next:
//!
//! ```text
//! r = s(x_0 W_r + b_r + h U_r + c_r)         s(x) = 1 / (1 + exp(-x)) = (1 + tanh(x / 2)) / 2
//! z = s(x_0 W_z + b_z + h U_z + c_z)
//! n = tanh(x_0 W_n + b_n + r (h U_n + c_n))
//! h' = (1 - z) n + z h                        goes into the first layer in place of x_0
//! ```
//!
//! Sums are taken in the order of the inputs, with a product and a sum rounded each, and `tanh` is libm's: the bits
//! are the same on every machine.
//!
//! What it saw while it was trained goes from `least` to `most`: what it would say beyond that nobody has tried, so there
//! it gets the nearest that it knows.
//!
//! A network may see all hosts and say all rates, or see one host's rows and say its rate: then it serves any number of
//! hosts, in any order.

/// Normalised observations go no further from 0.
const CUT: f32 = 10.0;

/// The most numbers that a layer has.
const MOST_WIDTH: usize = 4096;

/// The most layers.
const MOST_LAYERS: usize = 16;

/// What is between two layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// The hyperbolic tangent.
    #[default]
    Tanh,
    /// What is above 0.
    Relu,
}

impl Activation {
    /// All, with their names.
    pub const ALL: [(&'static str, Activation); 2] = [("tanh", Activation::Tanh), ("relu", Activation::Relu)];

    /// That of the name.
    pub fn named(name: &str) -> Option<Activation> {
        Activation::ALL.iter().find(|(known, _)| *known == name).map(|&(_, activation)| activation)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Activation::Tanh => "tanh",
            Activation::Relu => "relu",
        }
    }
}

/// A layer: `outputs = inputs W + b`.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// An input's weights for all outputs, input by input.
    pub weights: Vec<f32>,
    /// What is added to each output.
    pub biases: Vec<f32>,
}

impl Layer {
    fn outputs(&self) -> usize {
        self.biases.len()
    }

    fn inputs(&self) -> usize {
        self.weights.len() / self.biases.len().max(1)
    }

    fn forward(&self, inputs: &[f32], outputs: &mut Vec<f32>) {
        outputs.clear();
        outputs.extend_from_slice(&self.biases);
        for (&input, weights) in inputs.iter().zip(self.weights.chunks_exact(self.outputs())) {
            for (output, &weight) in outputs.iter_mut().zip(weights) {
                *output += input * weight;
            }
        }
    }
}

/// A gated recurrent unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// From what is seen to `r`, `z` and `n`, which stand side by side.
    pub inputs: Layer,
    /// The same from the state.
    pub state: Layer,
}

impl Cell {
    /// Numbers in its state.
    pub fn size(&self) -> usize {
        self.state.inputs()
    }

    /// The state that follows `state` where `inputs` are seen.
    fn forward(&self, inputs: &[f32], state: &mut [f32], gates: &mut Gates) {
        let size = state.len();
        self.inputs.forward(inputs, &mut gates.seen);
        self.state.forward(state, &mut gates.kept);
        let sigmoid = |x: f32| 0.5 + 0.5 * libm::tanhf(0.5 * x);
        for (at, value) in state.iter_mut().enumerate() {
            let both = |gate: usize| (gates.seen[gate * size + at], gates.kept[gate * size + at]);
            let ((r_x, r_h), (z_x, z_h), (n_x, n_h)) = (both(0), both(1), both(2));
            let (r, z) = (sigmoid(r_x + r_h), sigmoid(z_x + z_h));
            let n = libm::tanhf(n_x + r * n_h);
            *value = (1.0 - z) * n + z * *value;
        }
    }
}

/// What goes into a cell's gates.
#[derive(Clone, Debug, Default)]
struct Gates {
    seen: Vec<f32>,
    kept: Vec<f32>,
}

/// Why a network is none.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// There are none, or too many.
    #[error("a policy has {0} layers, must have 1 to {MOST_LAYERS}")]
    Layers(usize),
    /// A layer does not follow the one before.
    #[error(
        "layer {layer} has {weights} weights and {biases} biases; after {inputs} inputs it must have {inputs} x biases weights, and 1 to {MOST_WIDTH} biases"
    )]
    Shape {
        /// Which.
        layer: usize,
        /// What goes into it.
        inputs: usize,
        /// Its weights.
        weights: usize,
        /// Its biases.
        biases: usize,
    },
    /// A cell does not fit what is seen, or what follows it.
    #[error(
        "the cell's {part} have {weights} weights and {biases} biases; for {inputs} inputs and a state of {size} they must be \
         {inputs} x {triple} weights and {triple} biases, with {size} inputs to the first layer"
    )]
    Cell {
        /// Its inputs or its state.
        part: &'static str,
        /// Their weights.
        weights: usize,
        /// Their biases.
        biases: usize,
        /// What goes into them.
        inputs: usize,
        /// Numbers in the state.
        size: usize,
        /// Three times as many.
        triple: usize,
    },
    /// Something is not a number, or none that can stand there.
    #[error("{what} is {value}, must be {must}")]
    Value {
        /// What.
        what: String,
        /// What it is.
        value: f32,
        /// What it must be.
        must: &'static str,
    },
    /// It has another length.
    #[error("{what} has {has} numbers, must have {must}")]
    Length {
        /// What.
        what: &'static str,
        /// What it has.
        has: usize,
        /// What it must have.
        must: usize,
    },
    /// It is a policy for something else.
    #[error(
        "this policy makes {outputs} rates of {inputs} numbers; this environment has {row} numbers for each of {hosts} \
         hosts: a policy for it makes 1 rate of {row}, or {hosts} of {all}"
    )]
    Other {
        /// Its inputs.
        inputs: usize,
        /// Its outputs.
        outputs: usize,
        /// What is seen of a host.
        row: usize,
        /// How many there are.
        hosts: usize,
        /// What is seen of all.
        all: usize,
    },
}

/// The policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// What stands before the layers, if it remembers.
    cell: Option<Cell>,
    layers: Vec<Layer>,
    activation: Activation,
    mean: Vec<f32>,
    deviation: Vec<f32>,
    /// The least and the most that it saw in training, if that is known.
    known: Option<(Vec<f32>, Vec<f32>)>,
}

/// A number that lies beyond what a policy saw in training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beyond {
    /// The place among the policy's inputs.
    pub input: usize,
    /// The number.
    pub value: f32,
    /// The least that it saw there.
    pub least: f32,
    /// The most.
    pub most: f32,
}

/// What a forward writes to, and what a policy with memory remembers of all that it was shown with it: one for each course of
/// observations.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    inputs: Vec<f32>,
    outputs: Vec<f32>,
    gates: Gates,
    /// The cell's state, of each host.
    state: Vec<f32>,
}

impl Scratch {
    /// Another course begins.
    pub fn forget(&mut self) {
        self.state.clear();
    }
}

/// How a policy reads an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    hosts: usize,
    features: usize,
    /// Whether it sees one host at a time.
    is_shared: bool,
}

impl Reading {
    /// What of an observation a host's forward sees, or all of it for a policy that sees all hosts.
    fn inputs(&self, observation: &[f32], host: usize, inputs: &mut Vec<f32>) {
        let Reading { hosts, features, is_shared } = *self;
        inputs.clear();
        if !is_shared {
            inputs.extend_from_slice(observation);
            return;
        }
        // Of each observation its row; the newest is first.
        for frame in observation.chunks_exact(hosts * features) {
            inputs.extend_from_slice(&frame[host * features..(host + 1) * features]);
        }
    }

    /// The place of an input in a host's row.
    pub fn feature(&self, input: usize) -> usize {
        input % self.features
    }
}

impl Policy {
    /// Of these layers, over observations with these means and deviations.
    ///
    /// # Errors
    ///
    /// What does not fit, or is no number.
    pub fn new(
        layers: Vec<Layer>,
        activation: Activation,
        mean: Vec<f32>,
        deviation: Vec<f32>,
    ) -> Result<Policy, PolicyError> {
        Policy::of(None, layers, activation, mean, deviation)
    }

    /// One that remembers, by `cell`, which stands before the layers.
    ///
    /// # Errors
    ///
    /// What does not fit, or is no number.
    pub fn recurrent(
        cell: Cell,
        layers: Vec<Layer>,
        activation: Activation,
        mean: Vec<f32>,
        deviation: Vec<f32>,
    ) -> Result<Policy, PolicyError> {
        Policy::of(Some(cell), layers, activation, mean, deviation)
    }

    fn of(
        cell: Option<Cell>,
        layers: Vec<Layer>,
        activation: Activation,
        mean: Vec<f32>,
        deviation: Vec<f32>,
    ) -> Result<Policy, PolicyError> {
        if !(1..=MOST_LAYERS).contains(&layers.len()) {
            return Err(PolicyError::Layers(layers.len()));
        }
        let mut inputs = layers[0].inputs();
        for (number, layer) in layers.iter().enumerate() {
            let (weights, biases) = (layer.weights.len(), layer.biases.len());
            let fits = (1..=MOST_WIDTH).contains(&biases) && (1..=MOST_WIDTH).contains(&inputs);
            if !fits || inputs * biases != weights {
                return Err(PolicyError::Shape { layer: number, inputs, weights, biases });
            }
            finite(&format!("a weight of layer {number}"), &layer.weights)?;
            finite(&format!("a bias of layer {number}"), &layer.biases)?;
            inputs = biases;
        }
        if let Some(cell) = &cell {
            let (size, triple) = (layers[0].inputs(), 3 * layers[0].inputs());
            for (part, layer, inputs) in [("inputs", &cell.inputs, mean.len()), ("states", &cell.state, size)] {
                let (weights, biases) = (layer.weights.len(), layer.biases.len());
                if !(1..=MOST_WIDTH).contains(&inputs) || biases != triple || weights != inputs * triple {
                    return Err(PolicyError::Cell { part, weights, biases, inputs, size, triple });
                }
                finite("a number of the cell", &layer.weights)?;
                finite("a number of the cell", &layer.biases)?;
            }
        }
        let must = if cell.is_some() { mean.len() } else { layers[0].inputs() };
        for (what, numbers) in [("mean", &mean), ("deviation", &deviation)] {
            if numbers.len() != must {
                return Err(PolicyError::Length { what, has: numbers.len(), must });
            }
            finite(&format!("a number of {what}"), numbers)?;
        }
        if let Some(&value) = deviation.iter().find(|&&value| value <= 0.0) {
            return Err(PolicyError::Value { what: "a deviation".into(), value, must: "above 0" });
        }
        Ok(Policy { cell, layers, activation, mean, deviation, known: None })
    }

    /// The same, which in training saw numbers from `least` to `most`, input by input.
    ///
    /// # Errors
    ///
    /// When there are not as many as inputs, or one is no number, or the least is more than the most.
    pub fn with_known(mut self, least: Vec<f32>, most: Vec<f32>) -> Result<Policy, PolicyError> {
        for (what, numbers) in [("least", &least), ("most", &most)] {
            if numbers.len() != self.inputs() {
                return Err(PolicyError::Length { what, has: numbers.len(), must: self.inputs() });
            }
            finite(&format!("a number of {what}"), numbers)?;
        }
        if let Some((&value, _)) = least.iter().zip(&most).find(|(least, most)| least > most) {
            return Err(PolicyError::Value {
                what: "a number of least".into(),
                value,
                must: "at the most that of most",
            });
        }
        self.known = Some((least, most));
        Ok(self)
    }

    /// The least and the most that it saw in training, input by input, if that is known.
    pub fn known(&self) -> Option<(&[f32], &[f32])> {
        self.known.as_ref().map(|(least, most)| (least.as_slice(), most.as_slice()))
    }

    /// What it remembers by, if it does.
    pub fn cell(&self) -> Option<&Cell> {
        self.cell.as_ref()
    }

    /// Its layers, the first first.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// What is between them.
    pub fn activation(&self) -> Activation {
        self.activation
    }

    /// Means and deviations of what it sees.
    pub fn normal(&self) -> (&[f32], &[f32]) {
        (&self.mean, &self.deviation)
    }

    /// Numbers that it sees.
    pub fn inputs(&self) -> usize {
        self.mean.len()
    }

    /// Numbers that it says.
    pub fn outputs(&self) -> usize {
        self.layers[self.layers.len() - 1].outputs()
    }

    /// How it reads observations of this many hosts, with this many features each, and this many observations in one.
    ///
    /// # Errors
    ///
    /// When it is for others.
    pub fn reading(&self, hosts: usize, features: usize, history: usize) -> Result<Reading, PolicyError> {
        let (inputs, outputs, row) = (self.inputs(), self.outputs(), features * history);
        let all = row * hosts;
        let is_shared = match (inputs == all && outputs == hosts, inputs == row && outputs == 1) {
            (true, _) => false,
            (false, true) => true,
            (false, false) => return Err(PolicyError::Other { inputs, outputs, row, hosts, all }),
        };
        Ok(Reading { hosts, features, is_shared })
    }

    /// The rates for an observation, before they are cut at their range. One that remembers goes on from what it was shown
    /// with this scratch before.
    pub fn rates(&self, reading: Reading, observation: &[f32], scratch: &mut Scratch, rates: &mut [f32]) {
        if let Some(cell) = &self.cell {
            let states = if reading.is_shared { reading.hosts } else { 1 };
            if scratch.state.len() != states * cell.size() {
                scratch.state.clear();
                scratch.state.resize(states * cell.size(), 0.0);
            }
        }
        if !reading.is_shared {
            reading.inputs(observation, 0, &mut scratch.inputs);
            self.forward(scratch, 0);
            rates.copy_from_slice(&scratch.outputs);
            return;
        }
        for (host, rate) in rates.iter_mut().enumerate() {
            reading.inputs(observation, host, &mut scratch.inputs);
            self.forward(scratch, host);
            *rate = scratch.outputs[0];
        }
    }

    /// The first number of an observation that lies beyond what it saw in training.
    pub fn beyond(&self, reading: Reading, observation: &[f32], scratch: &mut Scratch) -> Option<Beyond> {
        let (least, most) = self.known()?;
        let hosts = if reading.is_shared { reading.hosts } else { 1 };
        (0..hosts).find_map(|host| {
            reading.inputs(observation, host, &mut scratch.inputs);
            let input = (0..scratch.inputs.len()).find(|&at| !(least[at]..=most[at]).contains(&scratch.inputs[at]))?;
            Some(Beyond { input, value: scratch.inputs[input], least: least[input], most: most[input] })
        })
    }

    /// From the scratch's inputs to its outputs, with the state of that number.
    fn forward(&self, scratch: &mut Scratch, number: usize) {
        if let Some((least, most)) = &self.known {
            for (value, (&least, &most)) in scratch.inputs.iter_mut().zip(least.iter().zip(most)) {
                *value = value.clamp(least, most);
            }
        }
        let normal = self.mean.iter().zip(&self.deviation);
        for (value, (mean, deviation)) in scratch.inputs.iter_mut().zip(normal) {
            *value = ((*value - mean) / deviation).clamp(-CUT, CUT);
        }
        if let Some(cell) = &self.cell {
            let Scratch { inputs, gates, state, .. } = scratch;
            let state = &mut state[number * cell.size()..][..cell.size()];
            cell.forward(inputs, state, gates);
            inputs.clear();
            inputs.extend_from_slice(state);
        }
        for (number, layer) in self.layers.iter().enumerate() {
            layer.forward(&scratch.inputs, &mut scratch.outputs);
            if number + 1 < self.layers.len() {
                for value in &mut scratch.outputs {
                    *value = match self.activation {
                        Activation::Tanh => libm::tanhf(*value),
                        Activation::Relu => value.max(0.0),
                    };
                }
                std::mem::swap(&mut scratch.inputs, &mut scratch.outputs);
            }
        }
    }
}

fn finite(what: &str, values: &[f32]) -> Result<(), PolicyError> {
    match values.iter().find(|value| !value.is_finite()) {
        Some(&value) => Err(PolicyError::Value { what: what.to_owned(), value, must: "a number" }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(weights: &[f32], biases: &[f32]) -> Layer {
        Layer { weights: weights.to_vec(), biases: biases.to_vec() }
    }

    /// 2 inputs, 2 hidden, 1 output.
    fn small(activation: Activation) -> Policy {
        let layers = vec![layer(&[1.0, -1.0, 0.5, 2.0], &[0.25, 0.0]), layer(&[2.0, 3.0], &[0.5])];
        Policy::new(layers, activation, vec![1.0, 0.0], vec![2.0, 1.0]).unwrap()
    }

    fn rates(policy: &Policy, hosts: usize, features: usize, observation: &[f32]) -> Vec<f32> {
        let history = observation.len() / hosts / features;
        let mut rates = vec![0.0; hosts];
        let reading = policy.reading(hosts, features, history).unwrap();
        policy.rates(reading, observation, &mut Scratch::default(), &mut rates);
        rates
    }

    #[test]
    fn a_forward_is_what_it_is_by_hand() {
        // (2, 0.5) is (0.5, 0.5) normalised; hidden 0.5 + 0.25 + 0.25 = 1 and -0.5 + 1 = 0.5.
        assert_eq!(rates(&small(Activation::Relu), 1, 2, &[2.0, 0.5]), [0.5 + 2.0 + 1.5]);
        let by_hand = 0.5 + 2.0 * libm::tanhf(1.0) + 3.0 * libm::tanhf(0.5);
        assert_eq!(rates(&small(Activation::Tanh), 1, 2, &[2.0, 0.5]), [by_hand]);
        // What is far off is cut: 10 and -10.
        assert_eq!(rates(&small(Activation::Relu), 1, 2, &[1e9, -1e9]), [0.5 + 2.0 * 5.25]);
    }

    #[test]
    fn the_bits_are_the_same_on_every_machine() {
        // A network whose weights are drawn from a course that any machine takes; its answer was written down.
        let mut state = 1u32;
        let mut draw = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        let mut layers = Vec::new();
        for (inputs, outputs) in [(6, 64), (64, 64), (64, 1)] {
            let weights = (0..inputs * outputs).map(|_| draw()).collect();
            layers.push(Layer { weights, biases: (0..outputs).map(|_| draw()).collect() });
        }
        let policy = Policy::new(layers, Activation::Tanh, vec![0.0; 6], vec![1.0; 6]).unwrap();
        let said = rates(&policy, 1, 6, &[0.9, 0.1, 0.0, 1.0, 0.125, 0.8]);
        assert_eq!(said[0].to_bits(), 0xbfd3_4bab, "{}", said[0]);
    }

    fn recurrent() -> Policy {
        let cell = Cell {
            inputs: layer(&[0.5, -1.0, 2.0], &[0.25, 0.0, -0.5]),
            state: layer(&[1.0, 0.5, -2.0], &[0.0, 0.125, 0.25]),
        };
        let layers = vec![layer(&[3.0], &[1.0])];
        Policy::recurrent(cell, layers, Activation::Tanh, vec![0.0], vec![1.0]).unwrap()
    }

    #[test]
    fn a_recurrent_forward_is_what_it_is_by_hand() {
        let policy = recurrent();
        let reading = policy.reading(1, 1, 1).unwrap();
        let mut scratch = Scratch::default();
        let mut h = 0.0_f64;
        for x in [0.75_f64, -0.5, 2.0] {
            let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
            let r = sigmoid(0.5 * x + 0.25 + h);
            let z = sigmoid(-x + 0.5 * h + 0.125);
            let n = (2.0 * x - 0.5 + r * (-2.0 * h + 0.25)).tanh();
            h = (1.0 - z) * n + z * h;
            let mut said = [0.0];
            policy.rates(reading, &[x as f32], &mut scratch, &mut said);
            assert!((f64::from(said[0]) - (3.0 * h + 1.0)).abs() < 1e-6, "{} and {}", said[0], 3.0 * h + 1.0);
        }
        let mut first = [0.0];
        scratch.forget();
        policy.rates(reading, &[0.75], &mut scratch, &mut first);
        assert_eq!(first, *rates(&policy, 1, 1, &[0.75]), "nothing is left of what was before");
    }

    #[test]
    fn each_host_is_remembered_by_itself() {
        let policy = recurrent();
        let (one, two) = (policy.reading(1, 1, 1).unwrap(), policy.reading(2, 1, 1).unwrap());
        let (mut a, mut b, mut both) = (Scratch::default(), Scratch::default(), Scratch::default());
        for step in 0..4 {
            let seen = [0.3 * step as f32, -0.2 + 0.1 * step as f32];
            let (mut said, mut of_a, mut of_b) = ([0.0; 2], [0.0], [0.0]);
            policy.rates(two, &seen, &mut both, &mut said);
            policy.rates(one, &seen[..1], &mut a, &mut of_a);
            policy.rates(one, &seen[1..], &mut b, &mut of_b);
            assert_eq!(said, [of_a[0], of_b[0]]);
        }
    }

    #[test]
    fn a_cell_that_does_not_fit_is_refused() {
        let refused = |inputs: Layer, state: Layer, mean: usize| {
            let layers = vec![layer(&[3.0], &[1.0])];
            let cell = Cell { inputs, state };
            Policy::recurrent(cell, layers, Activation::Tanh, vec![0.0; mean], vec![1.0; mean]).unwrap_err().to_string()
        };
        let good = || layer(&[0.0; 3], &[0.0; 3]);
        let said = refused(layer(&[0.0; 3], &[0.0; 2]), good(), 1);
        assert!(
            said.starts_with("the cell's inputs have 3 weights and 2 biases; for 1 inputs and a state of 1"),
            "{said}"
        );
        assert!(refused(good(), layer(&[0.0; 4], &[0.0; 3]), 1).starts_with("the cell's states have 4 weights"));
        assert!(refused(good(), good(), 2).contains("for 2 inputs"));
        assert!(refused(layer(&[f32::NAN; 3], &[0.0; 3]), good(), 1).contains("a number of the cell is NaN"));
    }

    #[test]
    fn a_policy_that_sees_one_host_serves_any_number_in_any_order() {
        let policy = small(Activation::Tanh);
        let one = |row: &[f32]| rates(&policy, 1, 2, row)[0];
        let (a, b, c) = ([0.1, 0.2], [0.3, 0.4], [0.5, 0.6]);
        assert_eq!(rates(&policy, 3, 2, &[a, b, c].concat()), [one(&a), one(&b), one(&c)]);
        assert_eq!(rates(&policy, 3, 2, &[c, a, b].concat()), [one(&c), one(&a), one(&b)]);
        // With history: a host's newest row, then the one before.
        assert_eq!(rates(&policy, 2, 1, &[0.1, 0.3, 0.2, 0.4]), [one(&a), one(&b)]);
    }

    #[test]
    fn what_lies_beyond_training_is_the_nearest_that_was_seen_and_is_named() {
        let known = small(Activation::Tanh).with_known(vec![0.0, -1.0], vec![3.0, 0.5]).unwrap();
        let said = |row: &[f32]| rates(&known, 1, 2, row);
        assert_eq!(said(&[2.0, 0.5]), rates(&small(Activation::Tanh), 1, 2, &[2.0, 0.5]), "within it nothing changes");
        assert_eq!(said(&[9.0, -7.0]), said(&[3.0, -1.0]));
        let reading = known.reading(2, 2, 1).unwrap();
        let beyond = |row: &[f32]| known.beyond(reading, row, &mut Scratch::default());
        assert_eq!(beyond(&[0.0, -1.0, 3.0, 0.5]), None, "bounds belong to it");
        let found = beyond(&[1.0, 0.0, 1.0, 0.75]).unwrap();
        assert_eq!(found, Beyond { input: 1, value: 0.75, least: -1.0, most: 0.5 });
        assert_eq!(small(Activation::Tanh).beyond(reading, &[9.0; 4], &mut Scratch::default()), None, "unknown");
        let refused = |least: &[f32], most: &[f32]| {
            small(Activation::Tanh).with_known(least.to_vec(), most.to_vec()).unwrap_err().to_string()
        };
        assert_eq!(refused(&[0.0], &[1.0; 2]), "least has 1 numbers, must have 2");
        assert_eq!(refused(&[0.0; 2], &[1.0, f32::NAN]), "a number of most is NaN, must be a number");
        assert_eq!(refused(&[0.0, 2.0], &[1.0; 2]), "a number of least is 2, must be at the most that of most");
    }

    #[test]
    fn what_is_no_network_is_refused() {
        let refused = |layers: Vec<Layer>, mean: &[f32], deviation: &[f32]| {
            Policy::new(layers, Activation::Tanh, mean.to_vec(), deviation.to_vec()).unwrap_err().to_string()
        };
        let good = || vec![layer(&[1.0, 2.0], &[0.0])];
        assert!(refused(Vec::new(), &[], &[]).contains("0 layers"));
        assert!(refused(vec![layer(&[], &[])], &[], &[]).starts_with("layer 0 has 0 weights and 0 biases"));
        assert!(
            refused(vec![layer(&[1.0; 4], &[0.0; 2]), layer(&[1.0; 3], &[0.0])], &[0.0; 2], &[1.0; 2])
                .starts_with("layer 1 has 3 weights and 1 biases; after 2 inputs")
        );
        assert_eq!(refused(good(), &[0.0], &[1.0; 2]), "mean has 1 numbers, must have 2");
        assert_eq!(refused(good(), &[0.0; 2], &[1.0, 0.0]), "a deviation is 0, must be above 0");
        assert!(refused(vec![layer(&[1.0, f32::NAN], &[0.0])], &[0.0; 2], &[1.0; 2]).contains("NaN, must be a number"));
        let policy = Policy::new(good(), Activation::Tanh, vec![0.0; 2], vec![1.0; 2]).unwrap();
        let other = policy.reading(4, 6, 1).unwrap_err().to_string();
        assert!(other.contains("1 rate of 6, or 4 of 24"), "{other}");
    }
}
