//! Several trees over the same nodes, each drawn with its root on top.

use super::svg::{Anchor, Path, Svg, TICK_TEXT, text_width};

/// Height of a tree's name.
const NAME: f64 = 18.0;
/// Between two levels of a tree.
const LEVEL: f64 = 34.0;
/// Around a tree.
const MARGIN: f64 = 12.0;
/// A tree is at least so wide, or else there are fewer of them in a row.
const LEAST_WIDTH: f64 = 240.0;
/// A node is a dot with this radius, and no number, where numbers would touch each other.
const DOT: f64 = 2.5;

/// A tree: what hangs below each node. The root is node 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Tree {
    name: String,
    children: Vec<Vec<usize>>,
}

impl Tree {
    /// A tree called `name`, made of the parent of each node from 1 on; those without a parent are not drawn,
    /// nor is what hangs below them.
    ///
    /// # Panics
    ///
    /// When a parent is no node.
    pub fn new(name: impl Into<String>, parents: &[Option<usize>]) -> Tree {
        let mut children = vec![Vec::new(); parents.len() + 1];
        for (child, parent) in parents.iter().enumerate() {
            if let Some(parent) = parent {
                children[*parent].push(child + 1);
            }
        }
        Tree { name: name.into(), children }
    }

    /// Each node that the root reaches: its number, how many leaves are left of it with half of its own, how
    /// deep it lies, and the index of its parent in this list.
    fn layout(&self) -> (Vec<Placed>, f64) {
        let mut placed = Vec::new();
        let mut leaves = 0.0;
        self.place(0, 0, None, &mut placed, &mut leaves);
        (placed, leaves)
    }

    fn place(
        &self,
        node: usize,
        depth: usize,
        above: Option<usize>,
        placed: &mut Vec<Placed>,
        leaves: &mut f64,
    ) -> f64 {
        let index = placed.len();
        placed.push(Placed { node, x: 0.0, depth, above });
        let below: Vec<f64> = self.children[node]
            .iter()
            .map(|&child| self.place(child, depth + 1, Some(index), placed, leaves))
            .collect();
        placed[index].x = match (below.first(), below.last()) {
            (Some(first), Some(last)) => (first + last) / 2.0,
            _ => {
                *leaves += 1.0;
                *leaves - 0.5
            }
        };
        placed[index].x
    }
}

struct Placed {
    node: usize,
    x: f64,
    depth: usize,
    above: Option<usize>,
}

/// Trees beside each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Forest {
    trees: Vec<Tree>,
}

impl Forest {
    /// These trees, from left to right and from top to bottom.
    pub fn new(trees: Vec<Tree>) -> Forest {
        Forest { trees }
    }

    pub(super) fn draw(&self, svg: &mut Svg) -> f64 {
        let columns = ((svg.width / LEAST_WIDTH) as usize).clamp(1, self.trees.len().max(1));
        let width = svg.width / columns as f64;
        let mut top = 4.0;
        for row in self.trees.chunks(columns) {
            let mut bottom: f64 = top;
            for (column, tree) in row.iter().enumerate() {
                bottom = bottom.max(draw_tree(tree, svg, (column as f64 * width, top), width));
            }
            top = bottom + MARGIN;
        }
        top
    }
}

/// Draws it into a column, and gives where it ends.
fn draw_tree(tree: &Tree, svg: &mut Svg, (left, top): (f64, f64), width: f64) -> f64 {
    let (placed, leaves) = tree.layout();
    let inner = width - 2.0 * MARGIN;
    let widest = text_width(&(tree.children.len() - 1).to_string(), TICK_TEXT);
    let has_numbers = inner / leaves.max(1.0) > widest + 2.0;
    svg.text("title", (left + MARGIN, top + 12.0), Anchor::Start, &tree.name);
    let at =
        |one: &Placed| (left + MARGIN + inner * one.x / leaves.max(1.0), top + NAME + 10.0 + LEVEL * one.depth as f64);
    // Room for a number at either end of an edge.
    let gap = if has_numbers { 8.0 } else { 0.0 };
    for one in &placed {
        let Some(above) = one.above else { continue };
        let (from, to) = (at(&placed[above]), at(one));
        svg.line("axis", (from.0, from.1 + gap), (to.0, to.1 - gap));
    }
    let mut dots = Path::default();
    for one in &placed {
        let (x, y) = at(one);
        match (has_numbers, one.node) {
            (_, 0) => svg.text("tick", (x, y + 4.0), Anchor::Middle, "S"),
            (true, node) => svg.text("tick", (x, y + 4.0), Anchor::Middle, &node.to_string()),
            (false, _) => dots.circle((x, y), DOT),
        }
    }
    svg.path("mark s0", &dots);
    let depth = placed.iter().map(|one| one.depth).max().unwrap_or(0);
    top + NAME + 20.0 + LEVEL * depth as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Chart;

    #[test]
    fn a_node_stands_above_the_middle_of_what_hangs_below_it() {
        // 0 -> 1 -> {3, 4}, 0 -> 2.
        let tree = Tree::new("", &[Some(0), Some(0), Some(1), Some(1)]);
        let (placed, leaves) = tree.layout();
        assert_eq!(leaves, 3.0);
        let x = |node: usize| placed.iter().find(|one| one.node == node).unwrap().x;
        assert_eq!((x(3), x(4), x(1), x(2), x(0)), (0.5, 1.5, 1.0, 2.5, 1.75));
    }

    #[test]
    fn what_the_root_does_not_reach_is_not_drawn() {
        // 2 has no parent, and 3 hangs below it.
        let tree = Tree::new("", &[Some(0), None, Some(2)]);
        let nodes: Vec<usize> = tree.layout().0.iter().map(|one| one.node).collect();
        assert_eq!(nodes, [0, 1]);
    }

    #[test]
    fn each_tree_has_its_name_and_numbers_are_left_out_where_they_would_touch() {
        let small = Tree::new("slice 1", &[Some(0), Some(1)]);
        let large = Tree::new("slice 2", &[Some(0); 200]);
        let svg = Chart::from(Forest::new(vec![small.clone(), small])).to_svg("trees");
        assert_eq!((svg.matches(">slice 1<").count(), svg.matches(">2</text>").count()), (2, 2));
        let svg = Chart::from(Forest::new(vec![large])).to_svg("trees");
        assert!(svg.contains(">slice 2<") && !svg.contains(">17</text>"));
    }
}
