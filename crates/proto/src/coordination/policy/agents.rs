//! Who is directed: hosts, or sub-domains of hosts.

/// Who is directed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Agents {
    /// Each host.
    #[default]
    Hosts,
    /// Each sub-domain: all hosts that come to the divided link over the same link before it. A coordinator of its own
    /// divides there what the sub-domain is directed.
    Domains,
}

impl Agents {
    /// All, with their names.
    pub const ALL: [(&'static str, Agents); 2] = [("hosts", Agents::Hosts), ("domains", Agents::Domains)];

    /// That of the name.
    pub fn named(name: &str) -> Option<Agents> {
        Agents::ALL.iter().find(|(known, _)| *known == name).map(|&(_, agents)| agents)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Agents::Hosts => "hosts",
            Agents::Domains => "domains",
        }
    }
}
