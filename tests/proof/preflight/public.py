"""Programs of kinds that everybody trains, each with its FLOPs counted by hand: what the counts are held against."""

from __future__ import annotations

from typing import Any

# A block of a transformer: attention and a feed-forward layer.
D_MODEL, HEADS, D_FF, TOKENS = 768, 12, 3072, 512


def transformer_arguments(batch: int = 8) -> Any:
    import jax.numpy as jnp

    shapes = {"qkv": (D_MODEL, 3 * D_MODEL), "out": (D_MODEL, D_MODEL), "up": (D_MODEL, D_FF), "down": (D_FF, D_MODEL)}
    return {name: jnp.zeros(shape) for name, shape in shapes.items()}, jnp.zeros((batch, TOKENS, D_MODEL))


def transformer(weights: Any, inputs: Any) -> Any:
    """Gradients of a loss over the block."""
    import jax
    import jax.numpy as jnp

    def loss(weights: Any) -> Any:
        batch = inputs.shape[0]
        q, k, v = jnp.split(inputs @ weights["qkv"], 3, -1)
        q, k, v = (x.reshape(batch, TOKENS, HEADS, -1).transpose(0, 2, 1, 3) for x in (q, k, v))
        scores = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) / 8.0)
        mixed = (scores @ v).transpose(0, 2, 1, 3).reshape(batch, TOKENS, D_MODEL)
        hidden = inputs + mixed @ weights["out"]
        return (hidden + jax.nn.gelu(hidden @ weights["up"]) @ weights["down"]).mean()

    return jax.grad(loss)(weights)


def transformer_flops(batch: int = 8) -> int:
    """Thrice the forward pass, less what nobody asks for: the gradient of the inputs, and the value of the loss."""
    tokens = batch * TOKENS
    qkv = 2 * tokens * D_MODEL * 3 * D_MODEL
    attention = 2 * 2 * batch * TOKENS * TOKENS * D_MODEL
    rest = 2 * tokens * (D_MODEL * D_MODEL + 2 * D_MODEL * D_FF)
    down = 2 * tokens * D_FF * D_MODEL
    return 3 * (attention + rest) + 2 * qkv - down


# A block of a residual network: 1x1, 3x3 and 1x1 convolutions.
SIDE, WIDE, NARROW = 56, 256, 64


def resnet_arguments(batch: int = 8) -> Any:
    import jax.numpy as jnp

    kernels = {"a": (1, 1, WIDE, NARROW), "b": (3, 3, NARROW, NARROW), "c": (1, 1, NARROW, WIDE)}
    return {name: jnp.zeros(shape) for name, shape in kernels.items()}, jnp.zeros((batch, SIDE, SIDE, WIDE))


def resnet(kernels: Any, images: Any) -> Any:
    """Gradients of the block's kernels."""
    import jax

    def convolved(x: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def loss(kernels: Any) -> Any:
        x = images
        for name in "abc":
            x = convolved(x, kernels[name])
            x = jax.nn.relu((x - x.mean((0, 1, 2))) / (x.std((0, 1, 2)) + 1e-5))
        return (x + images).mean()

    return jax.grad(loss)(kernels)


def resnet_flops(batch: int = 8) -> int:
    """The 3x3 convolution without the positions in its padding; no gradient of the inputs."""
    positions = batch * SIDE * SIDE
    inside = batch * (3 * SIDE - 2) ** 2
    a, b, c = (2 * positions * WIDE * NARROW, 2 * inside * NARROW * NARROW, 2 * positions * NARROW * WIDE)
    return 2 * a + 3 * b + 3 * c


# A recurrent layer, by a scan over time.
STEPS, FEATURES, CELLS = 100, 128, 256


def lstm_arguments(batch: int = 64) -> Any:
    import jax.numpy as jnp

    weights = {"x": jnp.zeros((FEATURES, 4 * CELLS)), "h": jnp.zeros((CELLS, 4 * CELLS))}
    return weights, jnp.zeros((STEPS, batch, FEATURES))


def lstm(weights: Any, inputs: Any) -> Any:
    """Gradients through all steps."""
    import jax
    import jax.numpy as jnp

    def loss(weights: Any) -> Any:
        def cell(carried: Any, x: Any) -> Any:
            h, c = carried
            i, f, g, o = jnp.split(x @ weights["x"] + h @ weights["h"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((inputs.shape[1], CELLS))
        return jax.lax.scan(cell, (zeros, zeros), inputs)[1].mean()

    return jax.grad(loss)(weights)


def lstm_flops(batch: int = 64) -> int:
    x, h = 2 * STEPS * batch * FEATURES * 4 * CELLS, 2 * STEPS * batch * CELLS * 4 * CELLS
    return 2 * x + 3 * h


# Recommendations: large tables, small layers.
TABLES, ROWS, WIDTH, HIDDEN = 8, 1_000_000, 32, 128


def embedding_arguments(batch: int = 4096) -> Any:
    import jax.numpy as jnp

    weights = {"tables": jnp.zeros((TABLES, ROWS, WIDTH))}
    weights.update(w1=jnp.zeros((TABLES * WIDTH, HIDDEN)), w2=jnp.zeros((HIDDEN, 1)))
    return weights, jnp.zeros((batch, TABLES), jnp.int32), jnp.zeros((batch,))


def embedding(weights: Any, ids: Any, clicks: Any) -> Any:
    """Gradients of tables and layers."""
    import jax
    import jax.numpy as jnp

    def loss(weights: Any) -> Any:
        rows = jnp.concatenate([weights["tables"][n][ids[:, n]] for n in range(TABLES)], -1)
        return ((jax.nn.relu(rows @ weights["w1"]) @ weights["w2"])[:, 0] - clicks).var()

    return jax.grad(loss)(weights)


def embedding_flops(batch: int = 4096) -> int:
    return 3 * 2 * batch * (TABLES * WIDTH * HIDDEN + HIDDEN)


# A block of a diffusion UNet: two convolutions with the time, and attention over positions.
LATENT, CHANNELS, TIME = 32, 320, 1280


def unet_arguments(batch: int = 4) -> Any:
    import jax.numpy as jnp

    weights = {"in": (3, 3, CHANNELS, CHANNELS), "out": (3, 3, CHANNELS, CHANNELS), "time": (TIME, CHANNELS)}
    weights["qkv"] = (CHANNELS, 3 * CHANNELS)
    made = {name: jnp.zeros(shape, jnp.bfloat16) for name, shape in weights.items()}
    return made, jnp.zeros((batch, LATENT, LATENT, CHANNELS), jnp.bfloat16), jnp.zeros((batch, TIME), jnp.bfloat16)


def unet(weights: Any, latents: Any, time: Any) -> Any:
    """The forward pass, as in sampling."""
    import jax
    import jax.numpy as jnp

    def convolved(x: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    x = convolved(jax.nn.silu(latents), weights["in"]) + (time @ weights["time"])[:, None, None, :]
    x = latents + convolved(jax.nn.silu(x), weights["out"])
    flat = x.reshape(x.shape[0], -1, CHANNELS)
    q, k, v = jnp.split(flat @ weights["qkv"], 3, -1)
    return flat + jax.nn.softmax(q @ k.transpose(0, 2, 1)) @ v


def unet_flops(batch: int = 4) -> int:
    inside, positions = (3 * LATENT - 2) ** 2, LATENT * LATENT
    convolutions = 2 * 2 * inside * CHANNELS * CHANNELS
    attention = 2 * positions * CHANNELS * 3 * CHANNELS + 2 * 2 * positions * positions * CHANNELS
    return batch * (convolutions + attention + 2 * TIME * CHANNELS)


# A deep stack of dense layers, by a scan over its layers.
DEPTH, BREADTH = 24, 1024


def deep_arguments(batch: int = 64) -> Any:
    import jax.numpy as jnp

    return jnp.zeros((DEPTH, BREADTH, BREADTH)), jnp.zeros((batch, 256, BREADTH))


def deep(weights: Any, inputs: Any) -> Any:
    """Gradients of all layers."""
    import jax

    def loss(weights: Any) -> Any:
        return jax.lax.scan(lambda x, weight: (jax.nn.gelu(x @ weight), None), inputs, weights)[0].mean()

    return jax.grad(loss)(weights)


def deep_flops(batch: int = 64) -> int:
    """A scan computes the gradient of its first input too, whether anybody asks for it or not."""
    return 3 * 2 * DEPTH * batch * 256 * BREADTH * BREADTH
