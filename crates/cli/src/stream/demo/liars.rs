//! Who lies in a demo, and how.

use std::str::FromStr;

use anabranch_net::stream::liar::Lie;

/// From this many viewers on, one of each kind lies if nothing is said.
const ENOUGH: u32 = 12;

/// How many lie in which way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Liars([u32; Lie::ALL.len()]);

impl Liars {
    /// One of each, if there are enough viewers.
    pub fn by_default(clients: u32) -> Liars {
        Liars([u32::from(clients >= ENOUGH); Lie::ALL.len()])
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Which of `clients` viewers lie how: at equal distances, and not the first.
    pub fn among(&self, clients: u32) -> Vec<Option<Lie>> {
        let kinds = Lie::ALL.iter().zip(self.0).flat_map(|(&kind, count)| (0..count).map(move |_| kind));
        let mut cast = vec![None; clients as usize];
        let count = self.count().max(1) as usize;
        for (number, kind) in kinds.enumerate() {
            let place = 1 + number * (cast.len() - 1) / count;
            cast[place] = Some(kind);
        }
        cast
    }
}

impl FromStr for Liars {
    type Err = String;

    fn from_str(text: &str) -> Result<Liars, String> {
        let mut liars = Liars::default();
        if text == "none" {
            return Ok(liars);
        }
        for part in text.split(',') {
            let expected = || {
                let kinds = Lie::ALL.map(Lie::name).join(", ");
                format!("{part:?}: expected KIND=N with a KIND of {kinds}, and a number from 0 to 200")
            };
            let (kind, count) = part.split_once('=').ok_or_else(expected)?;
            let place = Lie::ALL.iter().position(|known| known.name() == kind).ok_or_else(expected)?;
            liars.0[place] = count.parse().ok().filter(|&count| count <= 200).ok_or_else(expected)?;
        }
        Ok(liars)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn liars_are_read_as_they_are_written_and_have_places_of_their_own() {
        let liars: Liars = "free-rider=2,poisoner=1".parse().unwrap();
        assert_eq!((liars.count(), &liars.0), (3, &[2, 0, 0, 1]));
        assert_eq!("none".parse(), Ok(Liars::default()));
        for wrong in ["", "liar=1", "poisoner", "poisoner=x", "poisoner=1;claimer=1", "dropper=201"] {
            assert!(wrong.parse::<Liars>().unwrap_err().contains("free-rider"), "{wrong}");
        }
        let all = [(Liars::by_default(20), 20), (Liars([1; 4]), 5), (Liars([3, 0, 0, 5]), 9), (Liars::default(), 1)];
        for (liars, clients) in all {
            let cast = liars.among(clients);
            assert_eq!((cast.len(), cast[0]), (clients as usize, None));
            let kinds = Lie::ALL.map(|lie| cast.iter().filter(|one| **one == Some(lie)).count() as u32);
            assert_eq!(kinds, liars.0, "{clients}");
        }
        assert_eq!((Liars::by_default(11).count(), Liars::by_default(12).count()), (0, 4));
    }
}
