"""Holds whole programs: the loops that the device clock is proved on, and programs of three frameworks."""

from __future__ import annotations

from typing import Final

from benchmarks.gpu.loops import HEAD, IN_FP16, IN_HALF, LOOP, SCALER, WAITS, Loop, deep

WIDE: Final = (
    HEAD
    + """
width = size(4096, 64)
net = nn.Sequential(*[one for _ in range(4) for one in (nn.Linear(width, width), nn.ReLU())]).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
means = [one.detach().clone() for one in net.parameters()]
"""
)
BATCHES: Final = "loader = DataLoader(Held(steps, {}(torch.randn(size(2048, 16), width)), {}), batch_size=None)\n"
RESNET: Final = (
    HEAD
    + """
import shutil
try:
    from torchvision.models import resnet50
    net = resnet50()
except ImportError:
    shapes = [(3, 64), (64, 128), (128, 256)]
    blocks = [(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU()) for a, b in shapes]
    net = nn.Sequential(*[one for block in blocks for one in block], nn.AdaptiveAvgPool2d(1), nn.Flatten())
net = net.to(device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)

class Pictures(Held):
    def __getitem__(self, index):
        return self.batch.flip(-1) if index % 2 else self.batch.clone()

side = size(224, 32)
batch = size(128 if shutil.disk_usage("/dev/shm").free > 1 << 30 else 16, 4)  # a container may have little of it
pictures = Pictures(batch * steps, torch.randint(0, 255, (3, side, side), dtype=torch.uint8))
loader = DataLoader(pictures, batch_size=batch, num_workers=size(8, 1), pin_memory=pinned)
"""
)
SEEN: Final = IN_HALF.replace("net(x)", "net(x.float().div_(255).contiguous(memory_format=torch.channels_last))")
GPT: Final = (
    HEAD
    + """
width, words, length, batch = size(768, 32), size(50304, 128), size(1024, 16), size(4, 2)
layer = nn.TransformerEncoderLayer(width, width // 16, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
body = nn.TransformerEncoder(layer, size(12, 2), enable_nested_tensor=False)
net = nn.ModuleList([nn.Embedding(words, width), body, nn.Linear(width, words, bias=False)]).to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5)
mask = nn.Transformer.generate_square_subsequent_mask(length, device=torch.device(device))
loader = DataLoader(Held(4 * steps, pin(torch.randint(0, words, (batch, length)))), batch_size=None)
"""
)
SPOKEN: Final = """
for number, x in enumerate(loader):
    x = x.to(device, non_blocking=True)
    with torch.autocast(device, dtype=torch.bfloat16):
        out = net[2](net[1](net[0](x), mask=mask, is_causal=True))
        loss = functional.cross_entropy(out.flatten(0, 1), x.flatten()) / 4
    loss.backward()
    if number % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
"""
AVERAGED: Final = LOOP.replace(
    "    optimizer.step()", "    nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n    optimizer.step()"
)
LERP: Final = "    torch._foreach_lerp_(means, [one.detach() for one in net.parameters()], 0.01)\n"
AHEAD: Final = """
side = torch.cuda.Stream() if pinned else None

def ahead(batches):
    ready = None
    for x in batches:
        with torch.cuda.stream(side):
            coming = x.to(device, non_blocking=True)
        if ready is not None:
            yield ready
        if pinned:
            torch.cuda.current_stream().wait_stream(side)
            coming.record_stream(torch.cuda.current_stream())
        ready = coming
    yield ready
"""
PREFETCHED: Final = AHEAD + LOOP.replace("in loader", "in ahead(loader)").replace(
    "    x = x.to(device, non_blocking=True)\n", ""
)
CLOCKED: Final = (
    Loop("", "input", WIDE + BATCHES.format("", 10.0), WAITS, name="starved loader"),
    Loop("", "host", deep(32), WAITS, name="tiny MLP"),
    Loop("", "compute", RESNET, SEEN, name="ResNet-50, bf16, 8 workers"),
    Loop("", "compute", GPT, SPOKEN, name="GPT-2 small, accumulation 4"),
    Loop("", "compute", WIDE + SCALER + BATCHES.format("pin", 0.0), IN_FP16, name="fp16 with GradScaler"),
    Loop("", "compute", WIDE + BATCHES.format("pin", 4.0), AVERAGED + LERP, name="EMA and clipping"),
    Loop("", "compute", WIDE + BATCHES.format("pin", 2.0), PREFETCHED, name="prefetcher on a side stream"),
)
"""Each is timed by our marks and by torch.profiler."""

TRAINER: Final = """
import tempfile, transformers
transformers.logging.set_verbosity_error()
width = size(512, 16)
shape = dict(vocab_size=1000, hidden_size=width, num_hidden_layers=4, num_attention_heads=4, intermediate_size=width)
model = transformers.BertForSequenceClassification(transformers.BertConfig(**shape))
arguments = transformers.TrainingArguments(
    output_dir=tempfile.gettempdir(), max_steps=steps, per_device_train_batch_size=size(32, 4), bf16=pinned,
    gradient_accumulation_steps=2, use_cpu=not pinned, report_to=[], save_strategy="no", disable_tqdm=True,
)
rows = [{"input_ids": torch.randint(0, 1000, (size(128, 16),)), "labels": 0}] * (64 * 100)
trainer = transformers.Trainer(model=model, args=arguments, train_dataset=rows)
"""
LIT: Final = """
import lightning, logging
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
width, batch = size(2048, 16), size(256, 8)

class Lit(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    def training_step(self, x, index):
        loss = self.net(x).square().mean()
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)

quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer = lightning.Trainer(max_steps=steps, accelerator="gpu" if pinned else "cpu", devices=1, **quiet)
loader = DataLoader(Rows(batch * steps, (width,)), batch_size=batch)
"""
TIMM: Final = """
import timm
net = timm.create_model("resnet18", num_classes=10).to(device)
optimizer = timm.optim.create_optimizer_v2(net, opt="adamw", lr=1e-4)
average, scaler = timm.utils.ModelEmaV2(net), timm.utils.NativeScaler()
images = pin(torch.randn(size(64, 2), 3, size(224, 32), size(224, 32)))
loader = DataLoader(Held(steps, images), batch_size=None)
"""
TIMM_LOOP: Final = IN_FP16[: IN_FP16.index("    scaler.scale")] + (
    "    scaler(loss, optimizer, clip_grad=1.0, parameters=net.parameters())\n    average.update(net)\n"
)
FRAMEWORKS: Final = (
    Loop("", "", HEAD + TRAINER, "trainer.train()\n", name="transformers"),
    Loop("", "", HEAD + LIT, "trainer.fit(Lit(), loader)\n", name="lightning"),
    Loop("", "", HEAD + TIMM, TIMM_LOOP, name="timm"),
)
"""Each is only watched: are all of its steps heard?"""
