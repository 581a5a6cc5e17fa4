//! Keys and values of new tokens, written to their cells.
//!
//! Keys are written dimension-major, so one token's keys are scattered over a block, an element
//! every 32; values are written as rows. Elements of two bytes go through a kernel that rounds
//! sixteen at a time; the other types go through [`CellLayout`].

use crate::cell::{BLOCK_CELLS, CellBlocksMut, CellLayout, CellType};
use crate::error::{Error, length};
use crate::kernel_set::KernelSet;
use crate::pool::{Parts, Pool, n_jobs};

/// Floats that are worth a job.
const LEAST_WORK: usize = 1 << 14;

/// Store keys `[n_tokens, n_head_kv * d_k]` and values `[n_tokens, n_head_kv * d_v]` of new tokens
/// in the blocks of one layer, rounded to nearest even.
///
/// `cell` returns block and cell of token i; cells of several tokens must differ, or some are lost.
/// Allocates nothing.
///
/// # Errors
/// [`Error::Length`] for slices or blocks that do not fit the others, or a cell above 31,
/// [`Error::Ragged`] if the layout's heads do not fill their units, [`Error::Alignment`] for blocks
/// that do not start at multiples of 64 bytes, [`Error::Block`] for a block that is not there:
/// nothing was written then. [`Error::Panicked`] if a job of the pool panicked.
pub fn store(
    set: &KernelSet,
    pool: &dyn Pool,
    layout: &CellLayout,
    k: &[f32],
    v: &[f32],
    cell: &(dyn Fn(usize) -> (u32, u32) + Sync),
    mut blocks: CellBlocksMut<'_>,
) -> Result<(), Error> {
    let (k_width, v_width) = (layout.n_head_kv * layout.d_k, layout.n_head_kv * layout.d_v);
    let n_tokens = k.len() / k_width.max(1);
    length("keys", k.len(), n_tokens * k_width)?;
    length("values", v.len(), n_tokens * v_width)?;
    blocks.as_ref().check(layout)?;
    layout.check()?;
    let n_blocks = blocks.as_ref().len();
    for (block, cell) in (0..n_tokens).map(cell) {
        if block as usize >= n_blocks {
            return Err(Error::Block { found: block, n_blocks });
        }
        if cell as usize >= BLOCK_CELLS {
            return Err(Error::Length {
                what: "cell in its block",
                found: cell as usize,
                wanted: BLOCK_CELLS,
            });
        }
    }
    // Blocks that one segment of tokens fills are usually neighbours: only the range that is
    // written is shared out, in several parts a thread. A part is unrelated to the tokens' order:
    // each job looks for those that fall into its own.
    let numbers = || (0..n_tokens).map(|i| cell(i).0 as usize);
    let (Some(low), Some(last)) = (numbers().min(), numbers().max()) else { return Ok(()) };
    let n_jobs = n_jobs(pool, k.len() + v.len(), LEAST_WORK);
    let (bytes, stride) = blocks.between(low, last);
    let parts = Parts::new(bytes, stride, n_jobs);
    pool.run(n_jobs, &|job| {
        let Some((first, part)) = parts.take(job) else { return };
        for (i, (block, cell)) in (0..n_tokens).map(|i| (i, cell(i))) {
            let behind = (block as usize).checked_sub(low);
            let start = behind.and_then(|n| (n * stride).checked_sub(first));
            let block = start.and_then(|start| part.get_mut(start..start + layout.block_bytes()));
            if let Some(block) = block {
                put_keys(set, layout, block, cell as usize, &k[i * k_width..][..k_width]);
                put_values(set, layout, block, cell as usize, &v[i * v_width..][..v_width]);
            }
        }
    })?;
    Ok(())
}

type Encode = fn(&[f32], &mut [u16]);

/// Return the kernel that encodes elements of two bytes; none for the other types.
fn encoder(set: &KernelSet, stored: CellType) -> Option<Encode> {
    match stored {
        CellType::F16 => Some(set.encode_f16),
        CellType::BF16 => Some(set.encode_bf16),
        CellType::F32 | CellType::Q8_0 | CellType::Q4_0 => None,
    }
}

/// Write the keys of one token, `[n_head_kv, d_k]`, to one column of each head's panel.
fn put_keys(set: &KernelSet, layout: &CellLayout, block: &mut [u8], cell: usize, row: &[f32]) {
    let Some(encode) = encoder(set, layout.k_type) else { return layout.store_k(block, cell, row) };
    for (head, row) in row.chunks_exact(layout.d_k.max(1)).enumerate() {
        let panel: &mut [u16] = bytemuck::cast_slice_mut(&mut block[layout.k_range(head)]);
        let mut bits = [0; 64];
        for (panel, row) in panel.chunks_mut(64 * BLOCK_CELLS).zip(row.chunks(64)) {
            encode(row, &mut bits);
            for (column, x) in panel.chunks_exact_mut(BLOCK_CELLS).zip(&bits[..row.len()]) {
                column[cell] = *x;
            }
        }
    }
}

/// Write the values of one token, `[n_head_kv, d_v]`, to one row of each head's part.
fn put_values(set: &KernelSet, layout: &CellLayout, block: &mut [u8], cell: usize, row: &[f32]) {
    let Some(encode) = encoder(set, layout.v_type) else { return layout.store_v(block, cell, row) };
    for (head, row) in row.chunks_exact(layout.d_v.max(1)).enumerate() {
        let out = &mut block[layout.v_range(head)][cell * 2 * row.len()..][..2 * row.len()];
        encode(row, bytemuck::cast_slice_mut(out));
    }
}
